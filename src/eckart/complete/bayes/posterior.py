"""What the chains leave behind: S draws of everything, and predictions with their uncertainty.

The draws of the factors stand side by side in one ``LowRank``: U = sqrt(scale/S) (U_1, ..., U_S), V
the same, so that U V^T = scale/S sum_s U_s V_s^T is the posterior mean exactly. Here are the rest
of each draw and the standardisation (mean, scale): biases, mu, L, B, noise precisions.

A cell's draws are  a_s = mean + scale (b_is + c_js + u_is.v_js);  its prediction is their mean, its
uncertainty their variance, and a new observation
there has the variance  var(a_s) + mean_s scale^2 / (alpha_s p_is q_js).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from eckart.complete.bayes.chain import draw_rows
from eckart.complete.bayes.features import pattern
from eckart.complete.bayes.likelihood import fold_row_modes
from eckart.complete.folding import put_rows
from eckart.errors import FileError
from eckart.factors import LowRank
from eckart.matrix import Observed
from eckart.terms import Loss, Ordered, loss_from

CELL_BYTES = 2**25
"""Bytes of draws of factors that are held at once for the cells that are asked for."""
CELLS, NEW = 2**12, 2000
"""Cells looked at together, and new observations drawn for each: the ends of its interval are then
exact to about a percent of probability."""


@dataclass(frozen=True, eq=False)
class SideDraws:
    """Draws that belong to rows or columns: ``bias`` n x S, ``mu`` S x d, ``precision`` S x d x d,
    ``noise`` S x (nu, tau), and, where the model has them, ``precisions`` n x S, ``link`` S x
    features x d, the weights ``tails`` of the priors n x S and their ``degrees`` nu' (S)."""

    bias: np.ndarray
    mu: np.ndarray
    precision: np.ndarray
    noise: np.ndarray
    precisions: np.ndarray | None = None
    link: np.ndarray | None = None
    seen: bool = True  # whether the link has who-rated-what
    tails: np.ndarray | None = None
    degrees: np.ndarray | None = None

    def features(self, x: Observed, numbers: np.ndarray | None) -> Any:
        """The features of rows as the link has them: attributes first, then what each row
        observes."""
        seen = pattern(x) if self.seen else sparse.csr_array((x.shape[0], 0))
        return (
            seen
            if numbers is None
            else sparse.hstack([sparse.csr_array(numbers), seen], format="csr")
        )

    def with_rows(
        self, bias: np.ndarray, precisions: np.ndarray | None, tails: np.ndarray | None
    ) -> SideDraws:
        return replace(self, bias=bias, precisions=precisions, tails=tails)

    def merged(self, new: SideDraws, at: np.ndarray) -> SideDraws:
        """With the rows of ``new`` in place of those at positions ``at`` >= 0, the others
        behind."""
        own = ((self.precisions, new.precisions), (self.tails, new.tails))
        return self.with_rows(
            put_rows(self.bias, new.bias, at),
            *(None if a is None or b is None else put_rows(a, b, at) for a, b in own),
        )


@dataclass(frozen=True, eq=False)
class TimeDraws:
    """Bins of time: ``factors`` S x bins x d, (w_t, d_t) less their mean over all entries; inner
    ``ends`` of the bins; ``own`` rows x bins, the share of each bin in the entries of a row (none
    for a row that came after the fit)."""

    factors: np.ndarray
    ends: np.ndarray
    own: Any

    def own_means(self, i: np.ndarray) -> np.ndarray:
        """cells x S x d: the means of (w, d) over the times of the rows i."""
        s, bins, d = self.factors.shape
        return (self.own[i] @ self.factors.transpose(1, 0, 2).reshape(bins, s * d)).reshape(
            -1, s, d
        )

    def away(self, i: np.ndarray, t: np.ndarray) -> np.ndarray:
        """cells x S x d: (w, d) at the bins t less the means of the rows i."""
        return self.factors[:, t].transpose(1, 0, 2) - self.own_means(i)

    def with_rows(self, at: np.ndarray) -> TimeDraws:
        """After rows were solved anew (positions ``at`` >= 0) or added (-1) without times: they
        stand at the mean over all entries."""
        keep = np.ones(self.own.shape[0])
        keep[at[at >= 0]] = 0.0
        more = sparse.csr_array((int((at < 0).sum()), self.own.shape[1]))
        return replace(
            self,
            own=sparse.csr_array(
                sparse.vstack([sparse.diags_array(keep) @ self.own, more], format="csr")
            ),
        )

    def to_state(self) -> dict[str, np.ndarray]:
        own = self.own
        return {
            "time": self.factors,
            "time_ends": self.ends,
            "time_own": own.data,
            "time_bins": own.indices,
            "time_rows": own.indptr,
        }

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray]) -> TimeDraws | None:
        """The inverse; None where there is no time, and what does not fit together is refused."""
        found = [
            arrays.get(name) for name in ("time", "time_ends", "time_own", "time_bins", "time_rows")
        ]
        if all(a is None for a in found):
            return None
        factors, ends, shares, bins, rows = (np.zeros(0) if a is None else a for a in found)
        good = (
            factors.ndim == 3
            and ends.shape == (factors.shape[1] - 1,)
            and bool((np.diff(ends) > 0).all())
        )
        good = (
            good
            and shares.ndim == bins.ndim == rows.ndim == 1
            and shares.shape == bins.shape
            and len(rows) > 0
        )
        good = (
            good
            and bins.dtype.kind == rows.dtype.kind == "i"
            and rows[0] == 0
            and rows[-1] == len(bins)
        )
        good = (
            good
            and bool((np.diff(rows) >= 0).all())
            and bool(((bins >= 0) & (bins < factors.shape[1])).all())
        )
        if not good:
            raise FileError("bins of time came whose ends, factors and rows do not fit together")
        return cls(
            factors,
            ends,
            sparse.csr_array((shares, bins, rows), shape=(len(rows) - 1, factors.shape[1])),
        )


@dataclass(frozen=True, eq=False)
class Posterior:
    """S draws from ``chains`` chains (those of a chain stand together), in standard units."""

    rows: SideDraws
    columns: SideDraws
    alpha: np.ndarray
    mean: float
    scale: float
    chains: int
    time: TimeDraws | None = None
    thresholds: np.ndarray | None = None
    """S x (grades - 1), of an ordinal likelihood."""
    loss: Loss | None = None
    """The likelihood, where it is not the normal one: draws are natural parameters."""
    turned: bool = False
    """Whether rows stand for columns: a cold row and a cold column are drawn by different numbers,
    or their product would be too large."""

    @property
    def size(self) -> int:
        """S."""
        return len(self.alpha)

    def flipped(self) -> Posterior:
        """The same for the transposed matrix."""
        return replace(self, rows=self.columns, columns=self.rows, turned=not self.turned)

    def draws(
        self,
        f: LowRank,
        i: np.ndarray,
        j: np.ndarray,
        t: np.ndarray | None = None,
        new: bool = False,
    ) -> np.ndarray:
        """cells x S: the cells (i, j) in every draw, at the bins of time ``t`` (None: means over
        time); ``new`` rows have the mean of their biases in every draw."""
        s, k = self.size, f.k // self.size
        u, v = f.left[i].reshape(-1, s, k), f.right[j].reshape(-1, s, k)
        biases = (
            f.row_bias[i, None] / self.scale
            if new and f.row_bias is not None
            else self.rows.bias[i]
        ) + self.columns.bias[j]
        out = self.mean + s * np.einsum("psk,psk->ps", u, v, dtype=np.float64) + self.scale * biases
        if t is not None and self.time is not None:
            away, root = self.time.away(i, t), np.sqrt(self.scale / s)
            # factors in the model are root times those of a draw, and those of a row stand at the
            # mean of its own times
            both = (u + v) / root - self.time.own_means(i)[:, :, :-1]
            out += self.scale * (
                np.einsum("psk,psk->ps", both, away[:, :, :-1], dtype=np.float64) + away[:, :, -1]
            )
        return out

    def of_new(self, f: LowRank, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """The mean over draws of the cells (i, j), where -1 stands for a row or column of which
        nothing is known: in every draw it is at the mean of its prior, whose factors are not zero
        where rows have a taste in common."""
        s, k = self.size, f.k // self.size
        sides, root = [], np.sqrt(self.scale / s)
        for own, factor, at in ((self.rows, f.left, i), (self.columns, f.right, j)):
            centre = np.broadcast_to(own.mu.astype(np.float64), (len(at), *own.mu.shape)).copy()
            centre[at >= 0, :, :-1] = factor[at[at >= 0]].reshape(-1, s, k) / root
            centre[at >= 0, :, -1] = own.bias[at[at >= 0]]
            sides.append(centre)
        u, v = sides
        return self.mean + self.scale * (
            np.einsum("psk,psk->ps", u[:, :, :-1], v[:, :, :-1]) + u[:, :, -1] + v[:, :, -1]
        ).mean(axis=1)

    def loss_at(self, t: int, i: Any = None, j: Any = None) -> Any:
        """The likelihood of draw t; at the cells (i, j), where grades have noise levels of their
        own (None: those of no row or column)."""
        assert self.loss is not None
        if self.thresholds is None:
            return self.loss
        loss: Any = replace(self.loss, thresholds=tuple(map(float, self.thresholds[t])))  # type: ignore[call-arg]
        own = [
            s.precisions[at, t]
            for s, at in ((self.rows, i), (self.columns, j))
            if s.precisions is not None and at is not None
        ]
        return (
            loss.steeper(np.sqrt(np.prod(np.broadcast_arrays(*own), axis=0, dtype=np.float64)))
            if own
            else loss
        )

    def over_draws(
        self, s: np.ndarray, i: np.ndarray | None, j: np.ndarray, of: str = "mean"
    ) -> np.ndarray:
        """The mean over draws of ``loss.mean`` (or ``probabilities``, or another method) at natural
        parameters of the cells (i, j), cells x S."""
        return (
            sum(getattr(self.loss_at(t, i, j), of)(s[:, t]) for t in range(self.size)) / self.size
        )  # type: ignore[return-value]

    def noise(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Variance of the noise at the cells (i, j), averaged over the draws."""
        precision = np.broadcast_to(self.alpha, (len(i), self.size)).astype(np.float64)
        if self.rows.precisions is not None:
            precision = precision * self.rows.precisions[i]
        if self.columns.precisions is not None:
            precision = precision * self.columns.precisions[j]
        return self.scale**2 * np.mean(1.0 / precision, axis=1)

    def moments(
        self, f: LowRank, i: np.ndarray, j: np.ndarray, t: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Posterior mean of the cells, variance of that knowledge, variance of the noise."""
        mean, spread, noise = (np.empty(len(i)) for _ in range(3))
        step = cells_at_once(f)
        for a in range(0, len(i), step):
            part = slice(a, a + step)
            drawn = self.draws(f, i[part], j[part], None if t is None else t[part])
            # on the scale of the data: what is not known of its mean, and its own variance
            if self.loss is not None:
                attributes_part = [
                    self.loss_at(s, i[part], j[part]).mean_and_variance(drawn[:, s])
                    for s in range(self.size)
                ]
                drawn, noise[part] = (
                    np.stack([m for m, _ in attributes_part], axis=1),
                    np.mean([v for _, v in attributes_part], axis=0),
                )
            mean[part], spread[part] = (
                drawn.mean(axis=1),
                drawn.var(axis=1, ddof=min(1, self.size - 1)),
            )
            if self.loss is None:
                noise[part] = self.noise(i[part], j[part])
        return mean, spread, noise

    def interval(
        self, f: LowRank, i: np.ndarray, j: np.ndarray, level: float, bins: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and highest value of a new observation of a likelihood: at most (1 - level) /
        2 of its posterior lies beyond either."""
        tail, ends = 0.5 * (1 - level), np.empty((2, len(i)))
        rng = np.random.default_rng(0)
        for a in range(0, len(i), CELLS):
            part = slice(a, a + CELLS)
            s = self.draws(f, i[part], j[part], None if bins is None else bins[part])
            if isinstance(self.loss, Ordered):
                below = np.cumsum(self.over_draws(s, i[part], j[part], "probabilities"), axis=1)
                codes = [np.argmax(below >= q - 1e-12, axis=1) for q in (tail, 1 - tail)]
                ends[:, part] = self.loss.grades()[np.array(codes)]
            else:
                new = np.stack(
                    [
                        self.loss_at(t % self.size).draw(s[:, t % self.size], rng)
                        for t in range(NEW)
                    ],
                    axis=1,
                )
                ends[:, part] = np.quantile(new, [tail, 1 - tail], axis=1, method="inverted_cdf")
        return ends[0], ends[1]

    def block(
        self, f: LowRank, rows: np.ndarray, new: bool, clip: tuple[float, float] | None = None
    ) -> np.ndarray:
        """The mean over draws of the values of whole rows on the scale of the data, inside the
        range ``clip``; ``new`` rows have the mean of their biases in every draw."""
        s, k = self.size, f.k // self.size
        left, right = f.left[rows].reshape(-1, s, k), f.right.reshape(-1, s, k)
        own = f.row_bias[rows] if new and f.row_bias is not None else None
        total = np.zeros((len(left), f.n))
        for t in range(s):
            b = self.scale * self.rows.bias[rows, t] if own is None else own
            at = (
                self.mean
                + s * left[:, t] @ right[:, t].T
                + b[:, None]
                + self.scale * self.columns.bias[:, t]
            )
            if self.loss is None:
                total += at if clip is None else np.clip(at, *clip, out=at)
            else:
                total += self.loss_at(t, None if new else rows[:, None], np.arange(f.n)).mean(
                    at.astype(np.float64)
                )
        return (total / s).astype(f.dtype)

    def log_noise(self) -> np.ndarray:
        """chains x draws: logarithm of the noise variance of a typical cell."""
        out = -np.log(self.alpha.astype(np.float64))
        for side in (self.rows, self.columns):
            if side.precisions is not None:
                out -= np.log(side.precisions.astype(np.float64)).mean(axis=0)
        return out.reshape(self.chains, -1)

    def fold(
        self, f: LowRank, x: Observed, engine: Any, numbers: np.ndarray | None = None
    ) -> tuple[LowRank, SideDraws]:
        """New rows: in every draw their conditional mean given the columns, mu, L and B of that
        draw; and the draws that go with them.

        Where rows have noise precisions of their own, p starts at tau and is replaced once by its
        conditional mean; the weight w of a prior with heavy tails starts at 1 and is replaced with
        it. ``numbers`` are attributes of the rows; a row with attributes and no entry is drawn from
        its prior instead, in pairs on either side of the mean, so that its uncertainty shows.
        """
        n, s, k, dtype = x.shape[0], self.size, f.k // self.size, f.left.dtype
        y = replace(x, data=(x.data.astype(np.float64) - self.mean) / self.scale)
        if self.loss is not None:
            y = replace(x, data=x.data.astype(np.float64))
        placed, counts = engine.put(y), y.row_counts()[:, None]
        features = None if self.rows.link is None else self.rows.features(y, numbers)
        cold = np.flatnonzero(counts[:, 0] == 0) if numbers is not None else np.zeros(0, np.intp)
        away = pairs_of_normals(len(cold), s, k + 1, int(self.turned))
        root = np.sqrt(self.scale / s)
        left, bias = np.empty((n, s, k), dtype), np.empty((n, s), dtype)
        precisions = None if self.rows.precisions is None else np.empty((n, s), dtype)
        tails = None if self.rows.tails is None else np.empty((n, s), dtype)
        for t in range(s):
            design = np.ones((f.n, k + 1))
            design[:, :k] = f.right.reshape(-1, s, k)[:, t] / root
            lam = self.rows.precision[t]
            prior = (self.rows.mu[t] @ lam)[None]
            if features is not None and self.rows.link is not None:
                # columns added since the fit have no coefficients: their mean is 0
                known = self.rows.link[t]
                prior = engine.take((self.rows.mu[t] + features[:, : len(known)] @ known) @ lam)
            q = (
                None
                if self.columns.precisions is None
                else engine.take(self.columns.precisions[:, t], np.float64)
            )
            given = (
                engine,
                placed,
                engine.take(design),
                engine.take(self.columns.bias[:, t], np.float64),
            )
            if self.loss is not None:
                u = engine.get(
                    fold_row_modes(
                        *given[:2], self.loss_at(t), self.mean, *given[2:], q, lam, prior
                    )
                )
                if precisions is not None:
                    # what is typical: a mode tells nothing of the noise around it
                    precisions[:, t] = 1.0
                left[:, t], bias[:, t] = u[:, :k] * root, u[:, k]
                continue
            nu, tau = self.rows.noise[t]
            p = float(self.alpha[t]) if precisions is None else float(tau)
            out = draw_rows(*given, p, q, lam, prior, None)
            if precisions is not None or tails is not None:
                own, w = np.full((n, 1), p), np.ones((n, 1))
                if precisions is not None:
                    own = (nu + counts) / (nu / tau + engine.get(out.misfit()))
                    precisions[:, t] = own[:, 0]
                if tails is not None and self.rows.degrees is not None:
                    w = _weights(
                        engine.get(out.factors), np.asarray(prior), lam, self.rows.degrees[t]
                    )
                    tails[:, t] = w[:, 0]
                out = draw_rows(*given, engine.take(own / w), q, lam, prior, None)
            u = np.array(engine.get(out.factors))
            if len(cold):  # L = R^T R: R^-1 z has the covariance L^-1
                # that of a t distribution is nu' / (nu' - 2) times as large
                wide = (
                    1.0
                    if self.rows.degrees is None
                    else np.sqrt(self.rows.degrees[t] / (self.rows.degrees[t] - 2))
                )
                u[cold] += (
                    wide
                    * np.linalg.solve(np.linalg.cholesky(lam.astype(np.float64)).T, away[:, t].T).T
                )
            left[:, t], bias[:, t] = u[:, :k] * root, u[:, k]
        row_bias = (self.scale * bias.mean(axis=1)).astype(dtype)
        return f.with_rows(left.reshape(n, s * k), row_bias, None, x.rows), self.rows.with_rows(
            bias, precisions, tails
        )

    def shares(
        self,
        f: LowRank,
        i: int,
        j: int,
        seen: np.ndarray,
        values: np.ndarray,
        numbers: np.ndarray | None = None,
        bin: int | None = None,
    ) -> tuple[np.ndarray, float, dict[str, float]]:
        """What the entries (i, seen) add to the mean of cell (i, j), one number each, what is left,
        and how much of that are attributes, time and biases; see ``BayesianMF.explain``."""
        s, k = self.size, f.k // self.size
        y, root = (values - self.mean) / self.scale, np.sqrt(self.scale / s)
        design = np.ones((s, len(seen) + 1, k + 1))
        design[:, :, :k] = f.right[[*seen, j]].reshape(-1, s, k).transpose(1, 0, 2) / root
        row = Observed(np.array([0, len(seen)]), seen, y, f.n)
        features = None if self.rows.link is None else self.rows.features(row, numbers)
        total, base, attributes_part, biases = np.zeros(len(seen)), 0.0, 0.0, 0.0
        for t in range(s):
            v, goal, lam = design[t, :-1], design[t, -1], self.rows.precision[t].astype(np.float64)
            lam = lam if self.rows.tails is None else lam * float(self.rows.tails[i, t])
            centre = self.rows.mu[t].astype(np.float64)
            weight = np.full(
                len(seen),
                float(self.alpha[t])
                if self.rows.precisions is None
                else float(self.rows.precisions[i, t]),
            )
            if self.columns.precisions is not None:
                weight = weight * self.columns.precisions[seen, t]
            pull = np.linalg.solve(lam + (v.T * weight) @ v, goal)
            total += (v @ pull) * weight * (y - self.columns.bias[seen, t])
            biases += float(pull @ lam @ centre) + float(self.columns.bias[j, t])
            if features is not None and self.rows.link is not None:
                known = self.rows.link[t]
                if numbers is not None:
                    attributes_part += float(pull @ lam @ (numbers[0] @ known[: numbers.shape[1]]))
                base += float(pull @ lam @ np.asarray(features[:, : len(known)] @ known).ravel())
        unit = self.scale / s
        base, parts = self.mean + unit * (base + biases), dict[str, float]()
        if numbers is not None or bin is not None:
            parts = {"attributes": unit * attributes_part} if numbers is not None else {}
            if bin is not None:
                cell = np.array([i]), np.array([j])
                parts["time"] = float(
                    np.mean(self.draws(f, *cell, np.array([bin])) - self.draws(f, *cell))
                )
                base += parts["time"]
            parts["bias"] = self.mean + unit * biases
        return total * unit, base, parts

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values, for a model file."""
        arrays = {"alpha": self.alpha}
        for name in ("rows", "columns"):
            arrays |= {
                f"{name}.{n}": a
                for n, a in vars(getattr(self, name)).items()
                if isinstance(a, np.ndarray)
            }
        arrays |= {} if self.time is None else self.time.to_state()
        arrays |= {} if self.thresholds is None else {"thresholds": self.thresholds}
        values: dict[str, Any] = {"mean": self.mean, "scale": self.scale, "chains": self.chains}
        if self.loss is not None:
            values["loss"] = self.loss.to_state()
        seen = [side.seen or side.link is None for side in (self.rows, self.columns)]
        return arrays, values if all(seen) else values | {"seen": seen}

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], values: dict[str, Any]) -> Posterior:
        attributes_part = values.get(
            "seen", [True, True]
        )  # models saved earlier had no other links
        if (
            not isinstance(attributes_part, list)
            or len(attributes_part) != 2
            or not all(isinstance(s, bool) for s in attributes_part)
        ):
            raise FileError(
                f"seen must be two booleans (the links of rows and of columns), got {attributes_part!r}"
            )
        sides = [
            SideDraws(
                **{n[len(name) + 1 :]: a for n, a in arrays.items() if n.startswith(f"{name}.")},
                seen=seen,
            )
            for name, seen in zip(("rows", "columns"), attributes_part)
        ]
        loss = None if values.get("loss") is None else loss_from(values["loss"])
        return cls(
            sides[0],
            sides[1],
            arrays["alpha"],
            float(values["mean"]),
            float(values["scale"]),
            int(values["chains"]),
            TimeDraws.from_state(arrays),
            arrays.get("thresholds"),
            loss,
        )


def _weights(u: np.ndarray, prior: np.ndarray, lam: np.ndarray, degrees: float) -> np.ndarray:
    """Conditional means (nu' + d) / (nu' + (u - m)^T L (u - m)) of the weights of rows u (n x d)
    whose priors have L m = ``prior``; n x 1."""
    away = u - np.linalg.solve(lam.astype(np.float64), prior.T.astype(np.float64)).T
    return ((degrees + u.shape[1]) / (degrees + ((away @ lam) * away).sum(axis=1)))[:, None]


def cells_at_once(f: LowRank) -> int:
    """Cells whose draws are looked at together."""
    return max(1, CELL_BYTES // (8 * f.k))


def pairs_of_normals(rows: int, draws: int, d: int, stream: int) -> np.ndarray:
    """rows x draws x d: normal numbers of which two neighbouring draws have opposite ones, always
    the same."""
    half = np.random.default_rng(stream).standard_normal((rows, -(-draws // 2), d))
    return np.stack([half, -half], axis=2).reshape(rows, 2 * half.shape[1], d)[:, :draws]
