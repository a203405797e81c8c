"""Autoencoders: encoder F and decoder G trained together on the risk 1/2 E ||x - G(F(x))||^2 (or on
a Bernoulli likelihood), gaps masked out.

    minimise  1/N sum_i sum_{j observed} 1/2 (x_ij - G(F(x_i))_j)^2   + weight_decay/2 ||W||^2

F sees gaps as the mean of their column; G fills them. Rows held out of the training say when to
stop and which weights to keep. The certificate is stationary: gradient norm, held-out error, and
beside it the error of PCA at equal k on the same rows. Subclasses say which layers.

From rows to the network and back: gaps filled, outputs in the units of the data, the risk over
observed entries.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from eckart.bases import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from eckart.certify.certificate import Certificate
from eckart.certify.network import certify_network
from eckart.errors import FileError, InputError, invalid
from eckart.explained import explained_share
from eckart.factors import Network
from eckart.factors.checks import numbers
from eckart.fit import Fit, fitted, require_room, rows_to_fill
from eckart.io.models.checkpoint import resuming
from eckart.io.tables.missing import numeric
from eckart.loading import lazy
from eckart.matrix import Counts, Dense, Matrix, row_parts, squarable
from eckart.nn.lazy import need_torch
from eckart.nn.options import held_out_share, recipe_of
from eckart.nn.shell import (
    NetworkShell,
    as_array,
    drawn_seed,
    fingerprint,
    live,
    rows_at,
    split_rows,
    warn_of,
)
from eckart.parameters import check, either, is_int, number, param, whole
from eckart.reduce.compare import linear_risk, principal_subspace
from eckart.reduce.encode import as_observed
from eckart.rng import generator
from eckart.trace import StopReason

batches = lazy("eckart.nn.batches")
losses = lazy("eckart.nn.rules")
modules = lazy("eckart.nn.modules")
places = lazy("eckart.nn.place")
trainer = lazy("eckart.nn.train")

ROUNDS = 10
"""How often a row with gaps is filled and encoded again, by a network that has met no gaps in
training."""
FINITE = either(number(0), wanted="a finite number >= 0")


@dataclass(eq=False, repr=False)
class NetworkCoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, NetworkShell):
    """fit, partial_fit and the verbs of every autoencoder; a subclass gives the layers:
    ``_architecture``."""

    n_components: int = param(2, whole(1))
    _: KW_ONLY
    loss: Literal["squared", "bernoulli"] = param("squared")
    noise: float = param(0.0, FINITE)
    corruption: Literal["gaussian", "mask"] = param("gaussian")
    variational: float = param(0.0, FINITE)
    init: Literal["random", "pca"] = param("random")

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on the rows of X; NaN and absent entries of ``Observed`` data are unknown and play
        no part in the loss."""
        self._check()
        matrix, gpu = self._read_rows(X)
        require_room(
            "n_components", self.n_components, float(matrix.shape[1]) * self.n_components, 4
        )
        place = self._place(matrix, gpu)
        with resuming(self, matrix) as (memory, rng):
            seed = drawn_seed(rng)
            split = split_rows(
                int(matrix.shape[0] or 0), held_out_share(self, int(matrix.shape[0] or 0)), seed
            )
            net, scale, architecture = self._new_network(matrix, rows_at(matrix, split[0]), seed)
            loss, rows = self._loss(scale, place), batches.NetworkRows(matrix, scale, place)
            judge = self._loss(scale, place, hide=True) if rows.gaps else None
            recipe, run, place = self._run(net, loss, rows, split, place, seed, memory, judge)
        network = self._network(net, scale, architecture, matrix, rows.gaps)
        plan = self._choices(recipe, run, place, split, seed, network, matrix)
        certificate = self._evidence(
            network, matrix, split, place, rows, loss, run.trace.reason.value, recipe.batch_size
        )
        self._store(Fit(network, certificate, run.trace, plan), {"held_out": np.array(run.errors)})
        self.__dict__.pop("_stream", None)
        memory.end(run.trace)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Any:
        """One pass over more rows, from the present weights (also those of ``fit`` or of a file);
        the first call of all sets mean, scale and layers."""
        self._check()
        stream, matrix, gpu = self._streaming(X)
        place = self._place(matrix, gpu)
        rows = batches.NetworkRows(matrix, stream["scale"], place)
        recipe = replace(recipe_of(self, len(rows), place.cuda), max_iter=1, schedule="constant")
        loss, split = self._loss(stream["scale"], place), (np.arange(len(rows)), np.arange(0))
        of = (self.optimizer, str(place.device))
        at = {
            "seed": stream["seed"] + stream["calls"],
            "optimizer": stream["optimizer"] if stream["of"] == of else None,
        }
        with places.threads(self.n_threads):
            run = trainer.train(stream["net"], loss, rows, None, recipe, place, **at)
        warn_of(run.trace)
        stream |= {
            "rows": stream["rows"] + len(rows),
            "calls": stream["calls"] + 1,
            "optimizer": run.optimizer,
        }
        stream |= {"of": of, "gaps": stream["gaps"] or rows.gaps}
        network = self._network(
            stream["net"],
            stream["scale"],
            stream["architecture"],
            matrix,
            stream["gaps"],
            stream["rows"],
        )
        plan = self._choices(recipe, run, place, split, stream["seed"], network, matrix)
        plan |= {"reason": "partial_fit", "rows": stream["rows"]}
        certificate = self._evidence(
            network, matrix, split, place, rows, loss, run.trace.reason.value, recipe.batch_size
        )
        self._store(Fit(network, certificate, run.trace, plan), {"held_out": np.zeros(0)})
        self._stream = stream
        return self

    def _streaming(self, X: Any) -> tuple[dict[str, Any], Matrix, bool]:
        """What partial_fit goes on with, and the rows."""
        if "fit_" not in vars(self):
            matrix, gpu = self._read_rows(X)
            seed = drawn_seed(generator(self.random_state))
            made = zip(("net", "scale", "architecture"), self._new_network(matrix, matrix, seed))
            fresh = {
                "seed": seed,
                "rows": 0,
                "calls": 0,
                "optimizer": None,
                "of": None,
                "gaps": False,
            }
            return {**dict(made), **fresh}, matrix, gpu
        matrix, gpu = self._new(X)
        if self.n_components != self.fit_.factors.k:
            raise invalid(
                "n_components",
                self.n_components,
                f"{self.fit_.factors.k}, that of the weights; fit anew",
            )
        if self.loss == "bernoulli":
            shares_only(matrix)
        if "_stream" in vars(self):
            return dict(self._stream), matrix, gpu
        f, seed = self.fit_.factors, int(self.fit_.plan["seed"])
        scale = batches.ColumnScale(f.mean, f.spread, float(f.extras["per_row"][0]))
        kept = {
            "net": modules.with_weights(f.architecture, f.weights),
            "scale": scale,
            "architecture": f.architecture,
        }
        gaps = f.architecture["rounds"] == 0
        more = {
            "seed": seed,
            "rows": f.rows,
            "calls": 1,
            "optimizer": None,
            "of": None,
            "gaps": gaps,
        }
        return {**kept, **more}, matrix, gpu

    def transform(self, X: Any) -> np.ndarray:
        """Codes F(x), k numbers a row; of a Gaussian code, its mean."""
        matrix, gpu = self._new(X)
        f = self.fit_.factors
        return self._through(
            f, matrix, gpu, lambda net, batch: net.encode(fill_gaps(f, net, batch))[0]
        )

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Rows G(z) from codes z."""
        f = self._fitted("inverse_transform").factors
        torch = need_torch(type(self).__name__)
        X = as_array(X)
        codes = numeric(np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X))
        if codes.ndim != 2 or codes.shape[1] != f.k:
            raise InputError(f"codes must have shape (rows, {f.k}), got {codes.shape}")
        kind = torch.float64 if codes.dtype == np.float64 else torch.float32
        net = live(f, kind, "cpu")
        with torch.no_grad():
            out = net.decode(torch.tensor(np.ascontiguousarray(codes), dtype=kind)).numpy()
        return link(f, out).astype(codes.dtype if codes.dtype.kind == "f" else np.float64)

    def reconstruct(self, X: Any) -> np.ndarray:
        """G(F(x)) for each row, gaps filled."""
        matrix, gpu = self._new(X)
        return self._rebuilt(self.fit_.factors, matrix, gpu)

    def impute(self, X: Any = None) -> np.ndarray:
        """X with every missing entry replaced by its reconstruction; observed entries stay."""
        matrix, _ = self._new(rows_to_fill(self, X))
        return np.concatenate([block for _, block in self.complete(matrix)])

    def complete(self, X: Any, *, keep: bool = True) -> Iterator[tuple[Any, np.ndarray]]:
        """Blocks ``(row ids, values)`` of X with its unknown entries filled in; ``keep=False``
        gives the model's value everywhere."""
        matrix, at = self._new(X)[0], 0
        for part in row_parts(matrix, 4096):
            out, count = self.reconstruct(part), int(part.shape[0] or 0)
            if keep and isinstance(part, Dense):
                values = np.asarray(part.values)
                out = np.where(np.isnan(values), out, values)
            elif keep and isinstance(part, Counts):
                out = part.to_scipy().toarray().astype(out.dtype)
            elif keep:
                out[np.repeat(np.arange(count), np.diff(part.indptr)), part.indices] = part.data  # type: ignore[union-attr]
            yield (np.arange(at, at + count) if part.rows is None else part.rows), out
            at += count

    def reconstruction_error(self, X: Any) -> float:
        """The risk 1/2 mean ||x - G(F(x))||^2 on X; with gaps, over observed entries only."""
        matrix, _ = self._new(X)
        return risk_of(matrix, self.reconstruct)

    def score(self, X: Any, y: Any = None) -> float:
        """The share of the variance of X that the reconstruction explains, over its observed
        entries."""
        return explained_share(self._new(X)[0], self.reconstruct, centred=True)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Rows G(z) of codes z drawn from N(0, I); needs ``variational`` > 0."""
        f = self._fitted("sample").factors
        if not f.architecture["variational"]:
            raise InputError(
                "variational must be > 0, got 0: the codes of this model have no known "
                "distribution to draw from"
            )
        if not is_int(n_samples) or n_samples < 1:
            raise invalid("n_samples", n_samples, "an int >= 1")
        rng = generator(self.random_state if random_state is None else random_state)
        return self.inverse_transform(rng.standard_normal((int(n_samples), f.k)))

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again from this model and data. The training data are split as in
        the fit; other rows were all unseen."""
        matrix, gpu = self._new(X)
        squarable(matrix)
        f, plan, count = self.fit_.factors, self.fit_.plan, int(matrix.shape[0] or 0)
        seed, known = int(plan["seed"]), fingerprint(matrix) == plan["data checksum"]
        known = known and plan["reason"] != "partial_fit"
        split = split_rows(count, held_out_share(self, count) if known else 0.0, seed)
        place = self._place(matrix, gpu)
        scale = batches.ColumnScale(f.mean, f.spread, float(f.extras["per_row"][0]))
        rows = batches.NetworkRows(matrix, scale, place)
        more = (self.fit_.trace.reason.value, plan["batch_size"], known)
        return self._evidence(f, matrix, split, place, rows, self._loss(scale, place), *more)

    # ---- pieces

    @abstractmethod
    def _architecture(self, n: int, rows: int) -> dict[str, Any]:
        """The layers, as a plain value."""

    def _fits(self, f: Network, out: int) -> None:
        a = f.architecture
        rounds: Any = a.get("rounds")
        if (
            a["kind"] != "coder"
            or a["code"] != f.k
            or out != f.n
            or a.get("link") not in ("squared", "bernoulli")
        ):
            raise FileError(
                f"layers must have {f.k} numbers between, got layers from {f.n} to {out} numbers "
                f"through {a.get('code')!r}"
            )
        if not is_int(rounds) or not 0 <= rounds <= ROUNDS:
            raise FileError(f"rounds must be an int from 0 to {ROUNDS}, got {rounds!r}")
        numbers("per_row", f.extras["per_row"], (1,), 0.0)

    def _check(self) -> None:
        check(self)
        if self.corruption == "mask" and self.noise >= 1:
            raise invalid(
                "noise", self.noise, "a share below 1 of entries to hide, with corruption='mask'"
            )

    def _new_network(
        self, matrix: Matrix, training: Matrix, seed: int
    ) -> tuple[Any, Any, dict[str, Any]]:
        """A network with its first weights, and the scale of the training rows."""
        count, n = int(training.shape[0] or 0), matrix.shape[1]
        if self.loss == "bernoulli":
            shares_only(matrix)
        scale, architecture = batches.scale_of(training), self._architecture(n, count)
        net = modules.build(architecture, seed)
        if self.init == "pca":
            modules.start_at_subspace(
                net, principal_subspace(training, int(self.n_components), seed)
            )
        return net, scale, architecture

    def _loss(self, scale: Any, place: Any, hide: bool = False) -> Any:
        import torch

        back = offset = None
        if self.loss == "bernoulli":
            where = {"device": place.device, "dtype": place.dtype}
            back = (torch.as_tensor(scale.mean, **where), torch.as_tensor(scale.spread, **where))
            offset = torch.as_tensor(logit(scale.mean), **where)
        more: dict[str, Any] = {
            "variational": float(self.variational),
            "noise": float(self.noise),
            "hide": hide,
        }
        return losses.coding_loss(
            self.loss, scale.per_row, corruption=self.corruption, back=back, offset=offset, **more
        )

    def _network(
        self,
        net: Any,
        scale: Any,
        architecture: dict[str, Any],
        matrix: Matrix,
        gaps: bool,
        rows: int = 0,
    ) -> Network:
        met = gaps or (self.corruption == "mask" and self.noise > 0)
        architecture = architecture | {"link": self.loss, "rounds": 0 if met else ROUNDS}
        count, extras = rows or int(matrix.shape[0] or 0), {"per_row": np.array([scale.per_row])}
        more = (matrix.columns, count, None, extras)
        return Network(
            modules.arrays_of(net),
            architecture,
            scale.mean,
            scale.spread,
            int(self.n_components),
            *more,
        )

    def _rebuilt(self, f: Network, matrix: Matrix, gpu: bool = False) -> np.ndarray:
        """G(F(x)) by the network of these factors."""
        out = self._through(
            f, matrix, gpu, lambda net, batch: net.decode(net.encode(fill_gaps(f, net, batch))[0])
        )
        return link(f, out).astype(matrix.dtype, copy=False)

    def _evidence(
        self,
        network: Network,
        matrix: Matrix,
        split: Any,
        place: Any,
        rows: Any,
        loss: Any,
        stopped: str,
        batch_size: int,
        trained_on: bool = True,
    ) -> Certificate:
        """The certificate, measured at the weights of the factors; PCA stands beside it where its
        training rows are at hand (``trained_on``) and the fit was not interrupted."""
        trained_on = trained_on and stopped != StopReason.INTERRUPTED.value
        split = trainer.judged_rows(split, stopped)
        with places.threads(self.n_threads):
            net = modules.with_weights(network.architecture, network.weights).to(
                place.device, place.dtype
            )
            seen = batches.RowsPart(rows, split[0])
            measured: tuple[float, float, float, float | None] = trainer.slope(
                net, loss, seen, place, float(self.weight_decay), batch_size
            )
        judged, name = (split[1], "held-out risk") if len(split[1]) else (split[0], "risk")
        part = rows_at(matrix, judged)
        risk = risk_of(part, lambda x: self._rebuilt(network, x))
        by_mean = risk_of(
            part, lambda x: np.broadcast_to(network.mean, (x.shape[0] or 0, network.n))
        )
        linear = linear_risk(rows_at(matrix, split[0]), part, network.k) if trained_on else None
        facts: dict[str, Any] = {
            name: risk,
            f"{name} by the mean": by_mean,
            "rows judged": len(judged),
        }
        if linear is not None:
            facts[f"{name} by PCA at equal k"] = linear
            if linear > 0 or risk == 0:
                facts["risk / PCA"] = risk / linear if linear else 1.0
        notes = (
            ("objective and gradient without noise and sampling",)
            if self.noise or self.variational
            else ()
        )
        problem = (
            f"{self.loss} reconstruction through {network.k} numbers, {network.size:,} weights"
        )
        against = (risk, by_mean * (1 + 1e-6) + 1e-12, "the mean of the training rows")
        return certify_network(
            problem, *measured, facts, against=against, stopped=stopped, notes=notes
        )

    @fitted
    def n_components_(self) -> int:
        return self._fitted("n_components_").factors.k

    @property
    def _n_features_out(self) -> int:
        return self.n_components_


def fill_gaps(f: Network, net: Any, batch: Any) -> Any:
    """The input, its gaps filled by the network's own reconstruction where it was trained without
    gaps."""
    x = batch.x
    if batch.seen is None or f.architecture["link"] != "squared" or bool(batch.seen.all()):
        return x
    for _ in range(f.architecture["rounds"]):
        x = batch.x + (~batch.seen) * net.decode(net.encode(x)[0])
    return x


def link(f: Network, out: np.ndarray) -> np.ndarray:
    """From the network's output to a row."""
    if f.architecture["link"] == "bernoulli":
        return np.where(
            f.spread > 0, 1 / (1 + np.exp(-np.clip(out + logit(f.mean), -60, 60))), f.mean
        )
    return f.mean + f.spread * out


def risk_of(matrix: Matrix, reconstruct: Any) -> float:
    """1/2 mean over rows of the squared error over observed entries, by blocks."""
    total, count = 0.0, 0
    for part in row_parts(matrix, 4096):
        seen = as_observed(part)
        out = reconstruct(part)
        if isinstance(part, Dense):
            values = np.asarray(part.values, np.float64)
            away = np.where(np.isnan(values), 0.0, values - out)
        elif seen is not None:
            rows = np.repeat(np.arange(len(out)), seen.row_counts())
            away = seen.data - out[rows, seen.indices]
        else:
            away = part.to_scipy().toarray() - out  # type: ignore[union-attr]
        total += 0.5 * float(np.sum(away * away))
        count += len(out)
    return total / max(1, count)


def logit(p: np.ndarray) -> np.ndarray:
    p = np.clip(p, 1e-4, 1 - 1e-4)
    return np.log(p / (1 - p))


def shares_only(matrix: Matrix) -> None:
    """Refuse values outside 0 to 1, which no Bernoulli likelihood explains."""
    values = np.asarray(matrix.values) if isinstance(matrix, Dense) else matrix.data
    if values.size and not (np.nanmin(values) >= 0 and np.nanmax(values) <= 1):
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        raise InputError(
            f"X must hold numbers from 0 to 1 for loss='bernoulli', got numbers from {low:g} to "
            f"{high:g}. Scale X, or use loss='squared'."
        )
