"""Networks with an answer: what the classifier and the regressor share."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.exceptions import DataConversionWarning

from eckart.bases import ClassifierMixin
from eckart.certify.certificate import Certificate
from eckart.certify.network import certify_network
from eckart.errors import FileError, InputError
from eckart.factors import Network
from eckart.factors.checks import numbers
from eckart.fit import Fit
from eckart.io.models.checkpoint import resuming
from eckart.loading import lazy
from eckart.matrix import SQUARABLE, squarable
from eckart.nn.architecture import conv_head, dense_head, head_hidden, image_shape
from eckart.nn.options import WIDTHS, held_out_share
from eckart.nn.shell import NetworkShell, drawn_seed, fingerprint, rows_at, split_rows
from eckart.parameters import check, param

batches = lazy("eckart.nn.batches")
modules = lazy("eckart.nn.modules")
places = lazy("eckart.nn.place")
stepping = lazy("eckart.nn.steps")
training = lazy("eckart.nn.train")


@dataclass(eq=False, repr=False)
class NetworkHead(NetworkShell):
    """fit, the network's outputs and the certificate; a subclass says what the targets are."""

    _: KW_ONLY
    image: Any = param(None)
    channels: Any = param((32, 64), WIDTHS)

    _problem = ""
    epochs, small_batches, fine_rate = (
        (1500, 8, 300),
        2000,
        2.0,
    )  # labels fit in fewer and larger steps than whole rows do

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on rows X with answers y; missing entries of X count as the mean of their
        column."""
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None; pass one answer for each row"
            )
        check(self)
        matrix, gpu = self._read_rows(X)
        count = int(matrix.shape[0] or 0)
        targets, about = self._targets(y, count)
        place = self._place(matrix, gpu)
        with resuming(self, matrix, y=targets) as (memory, rng):
            seed = drawn_seed(rng)
            split = split_rows(count, held_out_share(self, count), seed)
            scale = batches.scale_of(rows_at(matrix, split[0]))
            architecture = self._architecture(
                matrix.shape[1], about["out"], len(split[0]), self._dropout(count)
            )
            net = modules.build(architecture, seed)
            rows = batches.NetworkRows(matrix, scale, place, _precise(targets, place))
            recipe, run, place = self._run(net, self._loss(), rows, split, place, seed, memory)
        weights = {
            name: w.astype(np.float64) if place.dtype.itemsize == 8 else w
            for name, w in modules.arrays_of(net).items()
        }
        more = (matrix.columns, count, about["classes"], about["extras"])
        network = Network(weights, architecture, scale.mean, scale.spread, about["out"], *more)
        plan = self._choices(recipe, run, place, split, seed, network, matrix)
        certificate = self._evidence(
            network, rows, targets, split, place, run.trace.reason.value, recipe.batch_size
        )
        self._store(Fit(network, certificate, run.trace, plan), {"held_out": np.array(run.errors)})
        memory.end(run.trace)
        return self

    def certify(self, X: Any, y: Any) -> Certificate:
        """Measure the certificate again from this model and data. The training data are split as in
        the fit; other rows were all unseen."""
        matrix, gpu = self._new(X)
        squarable(matrix)
        f, plan, count = self.fit_.factors, self.fit_.plan, int(matrix.shape[0] or 0)
        targets = self._coded(y, count)
        share = held_out_share(self, count) if fingerprint(matrix) == plan["data checksum"] else 0.0
        split, place = split_rows(count, share, int(plan["seed"])), self._place(matrix, gpu)
        rows = batches.NetworkRows(
            matrix,
            batches.ColumnScale(f.mean, f.spread, float(f.n)),
            place,
            _precise(targets, place),
        )
        return self._evidence(
            f, rows, targets, split, place, self.fit_.trace.reason.value, plan["batch_size"]
        )

    def _coded(self, y: Any, count: int) -> np.ndarray:
        """Answers as the network learned them."""
        f = self.fit_.factors
        if f.classes is None:
            return (numbers_of(y, count).reshape(count, -1) - f.extras["offset"]) / f.extras[
                "scale"
            ]
        labels = labels_of(y, count)
        at = np.minimum(np.searchsorted(f.classes, labels), len(f.classes) - 1)
        if (f.classes[at] != labels).any():
            strange = labels[np.argmax(f.classes[at] != labels)]
            raise InputError(
                f"y must hold one of the classes of the training data, got {strange!r}"
            )
        return at.astype(np.int64)

    def _dropout(self, rows: int) -> float:
        """The share of hidden units that a step leaves out, for data of so many rows."""
        return float(self.dropout)

    def _architecture(self, n: int, out: int, rows: int, dropout: float) -> dict[str, Any]:
        hidden = None if self.hidden is None else [int(w) for w in self.hidden]
        if self.image is None:
            return dense_head(
                n,
                out,
                head_hidden(n, rows) if hidden is None else hidden,
                self.activation,
                dropout,
            )
        if self.channels is None or len(self.channels) == 0:
            raise InputError(
                "channels must be a list of at least one number of filters with "
                f"image={self.image!r}, got {self.channels!r}"
            )
        shape, channels = image_shape(self.image, n), [int(c) for c in self.channels]
        return conv_head(
            shape,
            out,
            channels,
            [128] if hidden is None else hidden,
            self.activation,
            dropout,
        )

    def _outputs(self, X: Any) -> np.ndarray:
        matrix, gpu = self._new(X)
        return self._through(self.fit_.factors, matrix, gpu, lambda net, batch: net(batch.x))

    def _evidence(
        self,
        network: Network,
        rows: Any,
        targets: np.ndarray,
        split: Any,
        place: Any,
        stopped: str,
        batch_size: int,
    ) -> Certificate:
        import torch

        split = training.judged_rows(split, stopped)
        judged, name = (split[1], "held-out error") if len(split[1]) else (split[0], "error")
        with places.threads(self.n_threads):
            net = modules.with_weights(network.architecture, network.weights).to(
                place.device, place.dtype
            )
            seen = batches.RowsPart(rows, split[0])
            measured: tuple[float, float, float, float | None] = training.slope(
                net, self._loss(), seen, place, float(self.weight_decay), batch_size
            )
            with torch.no_grad():
                out = np.concatenate(
                    stepping.over_rows(
                        batches.RowsPart(rows, judged), lambda b: net(b.x).double().cpu().numpy()
                    )
                )
        error, more = self._measured(out, targets[judged])
        trivial, words = self._trivial(targets[split[0]], targets[judged], network.k)
        facts = {name: error, f"{name} by {words}": trivial, "rows judged": len(judged), **more}
        problem = f"{self._problem}, {network.size:,} weights"
        against = (error, trivial * (1 + 1e-6) + 1e-9, words)
        return certify_network(problem, *measured, facts, against=against, stopped=stopped)

    def _fits(self, f: Network, out: int) -> None:
        if (
            f.architecture["kind"] != "head"
            or out != f.k
            or (f.classes is None) == isinstance(self, ClassifierMixin)
        ):
            raise FileError(
                f"a network for a {type(self).__name__} must have {f.k} outputs, got {out}"
            )
        if f.classes is None:
            numbers("offset", f.extras["offset"], (f.k,))
            numbers("scale", f.extras["scale"], (f.k,))
            numbers("flat", f.extras["flat"], (1,))

    @abstractmethod
    def _targets(self, y: Any, rows: int) -> tuple[np.ndarray, dict[str, Any]]:
        """Targets as numbers, and what the model must remember of them."""

    @abstractmethod
    def _trivial(self, y: np.ndarray, judged: np.ndarray, out: int) -> tuple[float, str]:
        """The error of the best answer that looks at no row, and what that is."""

    @abstractmethod
    def _measured(self, out: np.ndarray, y: np.ndarray) -> tuple[float, dict[str, Any]]:
        """The error of these outputs, and other facts about them."""

    @abstractmethod
    def _loss(self) -> Any:
        """The loss that is trained."""


def _precise(targets: np.ndarray, place: Any) -> np.ndarray:
    """Numbers in the precision of the network; class positions as they are."""
    if targets.dtype.kind != "f":
        return targets
    return targets.astype(np.float64 if place.dtype.itemsize == 8 else np.float32)


def labels_of(y: Any, rows: int) -> np.ndarray:
    """One label for each row."""
    from sklearn.utils.validation import column_or_1d

    try:
        labels = column_or_1d(y.to_numpy() if hasattr(y, "to_numpy") else y, warn=True)
    except (TypeError, ValueError) as error:  # scikit-learn's words, in an error of ours
        raise InputError(str(error)) from None
    return _as_many(labels, rows)


def numbers_of(y: Any, rows: int) -> np.ndarray:
    """Finite targets, rows or rows x outputs."""
    given = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    try:
        values = given.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            "y must be one number (or one row of numbers) for each row of X, got something "
            "that is not numeric"
        ) from None
    if values.ndim == 2 and values.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected.",
            DataConversionWarning,
            stacklevel=4,
        )
        values = values[:, 0]
    if values.ndim not in (1, 2):
        raise InputError(f"y must have 1 or 2 dimensions, got {values.ndim}")
    if not np.isfinite(values).all():
        at = np.argwhere(~np.isfinite(values))[0]
        raise InputError(
            f"y must hold finite numbers, got {values[tuple(at)]} (NaN or infinity) at row {at[0]}"
        )
    low, high = SQUARABLE[values.dtype]
    largest = float(np.abs(values).max(initial=0.0))
    if largest and not low <= largest <= high:
        raise InputError(
            f"the largest entry of y must be {low:.0e} to {high:.0e}, got {largest:.0e}: its "
            "squares leave the range. Rescale it."
        )
    return _as_many(values, rows)


def _as_many(y: np.ndarray, rows: int) -> np.ndarray:
    if len(y) != rows:
        raise InputError(
            f"y must have {rows} entries, one for each row of X, got {len(y)}: inconsistent "
            "numbers of samples"
        )
    return y
