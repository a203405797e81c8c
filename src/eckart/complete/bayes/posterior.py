"""What the chains leave behind: S draws of everything, and predictions with their uncertainty.

The draws of the factors stand side by side in one ``LowRank``: U = sqrt(scale/S) (U_1, ..., U_S), V the same, so that U V^T = scale/S sum_s U_s V_s^T is the
posterior mean exactly. Here are the rest of each draw and the standardisation (mean, scale): biases, mu, L, B, noise precisions.

A cell's draws are  a_s = mean + scale (b_is + c_js + u_is.v_js);  its prediction is their mean, its uncertainty their variance, and a new observation
there has the variance  var(a_s) + mean_s scale^2 / (alpha_s p_is q_js).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eckart.complete.bayes.chain import draw_rows
from eckart.complete.bayes.features import pattern
from eckart.complete.bayes.likelihood import fold_row_modes
from eckart.factors import LowRank
from eckart.matrix import Observed
from eckart.terms import Loss, Ordered, loss_from

CELL_BYTES = 2**25
CELLS, NEW = 2**12, 2000
"""Cells looked at together, and new observations drawn for each: the ends of its interval are then exact to about a percent of probability."""


@dataclass(frozen=True, eq=False)
class SideDraws:
    """Draws that belong to rows or columns: ``bias`` n x S, ``mu`` S x d, ``precision`` S x d x d, ``noise`` S x (nu, tau), and, where the model
    has them, ``precisions`` n x S and ``link`` S x features x d."""

    bias: np.ndarray
    mu: np.ndarray
    precision: np.ndarray
    noise: np.ndarray
    precisions: np.ndarray | None = None
    link: np.ndarray | None = None

    def with_rows(self, bias: np.ndarray, precisions: np.ndarray | None) -> SideDraws:
        return replace(self, bias=bias, precisions=precisions)


@dataclass(frozen=True, eq=False)
class Posterior:
    """S draws from ``chains`` chains (those of a chain stand together), in standard units."""

    rows: SideDraws
    columns: SideDraws
    alpha: np.ndarray
    mean: float
    scale: float
    chains: int
    thresholds: np.ndarray | None = None
    """S x (grades - 1), of an ordinal likelihood."""
    loss: Loss | None = None
    """The likelihood, where it is not the normal one: draws are natural parameters."""

    @property
    def size(self) -> int:
        """S."""
        return len(self.alpha)

    def flipped(self) -> Posterior:
        """The same for the transposed matrix."""
        return replace(self, rows=self.columns, columns=self.rows)

    def draws(self, f: LowRank, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """cells x S: the cells (i, j) in every draw."""
        s, k = self.size, f.k // self.size
        u, v = f.left[i].reshape(-1, s, k), f.right[j].reshape(-1, s, k)
        biases = self.rows.bias[i] + self.columns.bias[j]
        return self.mean + s * np.einsum("psk,psk->ps", u, v, dtype=np.float64) + self.scale * biases

    def loss_at(self, t: int) -> Loss:
        """The likelihood of draw t."""
        assert self.loss is not None
        if self.thresholds is None:
            return self.loss
        return replace(self.loss, thresholds=tuple(map(float, self.thresholds[t])))  # type: ignore[call-arg]

    def over_draws(self, s: np.ndarray, of: str = "mean") -> np.ndarray:
        """The mean over draws of ``loss.mean`` (or ``probabilities``, or another method) at natural parameters, cells x S."""
        return sum(getattr(self.loss_at(t), of)(s[:, t]) for t in range(self.size)) / self.size  # type: ignore[return-value]

    def noise(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Variance of the noise at the cells (i, j), averaged over the draws."""
        precision = np.broadcast_to(self.alpha, (len(i), self.size)).astype(np.float64)
        if self.rows.precisions is not None:
            precision = precision * self.rows.precisions[i]
        if self.columns.precisions is not None:
            precision = precision * self.columns.precisions[j]
        return self.scale**2 * np.mean(1.0 / precision, axis=1)

    def moments(self, f: LowRank, i: np.ndarray, j: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Posterior mean of the cells, variance of that knowledge, variance of the noise."""
        mean, spread, noise = (np.empty(len(i)) for _ in range(3))
        step = max(1, CELL_BYTES // (8 * f.k))
        for a in range(0, len(i), step):
            part = slice(a, a + step)
            drawn = self.draws(f, i[part], j[part])
            if self.loss is not None:  # on the scale of the data: what is not known of its mean, and its own variance
                noise[part] = self.over_draws(drawn, "variance")
                drawn = np.stack([self.loss_at(t).mean(drawn[:, t]) for t in range(self.size)], axis=1)
            mean[part], spread[part] = drawn.mean(axis=1), drawn.var(axis=1, ddof=min(1, self.size - 1))
            if self.loss is None:
                noise[part] = self.noise(i[part], j[part])
        return mean, spread, noise

    def interval(self, f: LowRank, i: np.ndarray, j: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and highest value of a new observation of a likelihood: at most (1 - level) / 2 of its posterior lies beyond either."""
        tail, ends = 0.5 * (1 - level), np.empty((2, len(i)))
        rng = np.random.default_rng(0)
        for a in range(0, len(i), CELLS):
            part = slice(a, a + CELLS)
            s = self.draws(f, i[part], j[part])
            if isinstance(self.loss, Ordered):
                below = np.cumsum(self.over_draws(s, "probabilities"), axis=1)
                codes = [np.argmax(below >= q - 1e-12, axis=1) for q in (tail, 1 - tail)]
                ends[:, part] = self.loss.grades()[np.array(codes)]
            else:
                new = np.stack([self.loss_at(t % self.size).draw(s[:, t % self.size], rng) for t in range(NEW)], axis=1)
                ends[:, part] = np.quantile(new, [tail, 1 - tail], axis=1, method="inverted_cdf")
        return ends[0], ends[1]

    def block(self, f: LowRank, rows: np.ndarray, new: bool) -> np.ndarray:
        """The mean over draws of the values of whole rows on the scale of the data; ``new`` rows have the mean of their biases in every draw."""
        s, k = self.size, f.k // self.size
        left, right = f.left[rows].reshape(-1, s, k), f.right.reshape(-1, s, k)
        own = f.row_bias[rows] if new and f.row_bias is not None else None
        total = np.zeros((len(left), f.n))
        for t in range(s):
            b = self.scale * self.rows.bias[rows, t] if own is None else own
            at = self.mean + s * left[:, t] @ right[:, t].T + b[:, None] + self.scale * self.columns.bias[:, t]
            total += self.loss_at(t).mean(at.astype(np.float64))
        return (total / s).astype(f.dtype)

    def log_noise(self) -> np.ndarray:
        """chains x draws: logarithm of the noise variance of a typical cell."""
        out = -np.log(self.alpha.astype(np.float64))
        for side in (self.rows, self.columns):
            if side.precisions is not None:
                out -= np.log(side.precisions.astype(np.float64)).mean(axis=0)
        return out.reshape(self.chains, -1)

    def fold(self, f: LowRank, x: Observed, engine: Any) -> tuple[LowRank, SideDraws]:
        """New rows: in every draw their conditional mean given the columns, mu, L and B of that draw; and the draws that go with them.

        Where rows have noise precisions of their own, p starts at tau and is replaced once by its conditional mean.
        """
        n, s, k, dtype = x.shape[0], self.size, f.k // self.size, f.left.dtype
        y = replace(x, data=(x.data.astype(np.float64) - self.mean) / self.scale)
        if self.loss is not None:
            y = replace(x, data=x.data.astype(np.float64))
        placed, counts = engine.put(y), y.row_counts()[:, None]
        features = None if self.rows.link is None else pattern(y)
        root = np.sqrt(self.scale / s)
        left, bias = np.empty((n, s, k), dtype), np.empty((n, s), dtype)
        precisions = None if self.rows.precisions is None else np.empty((n, s), dtype)
        for t in range(s):
            design = np.ones((f.n, k + 1))
            design[:, :k] = f.right.reshape(-1, s, k)[:, t] / root
            lam = self.rows.precision[t]
            prior = (self.rows.mu[t] @ lam)[None]
            if features is not None and self.rows.link is not None:
                known = self.rows.link[t]  # columns added since the fit have no coefficients: their mean is 0
                prior = engine.take((self.rows.mu[t] + features[:, : len(known)] @ known) @ lam)
            q = None if self.columns.precisions is None else engine.take(self.columns.precisions[:, t], np.float64)
            given = engine, placed, engine.take(design), engine.take(self.columns.bias[:, t], np.float64)
            if self.loss is not None:
                u = engine.get(fold_row_modes(*given[:2], self.loss_at(t), self.mean, *given[2:], lam, prior))
                left[:, t], bias[:, t] = u[:, :k] * root, u[:, k]
                continue
            if precisions is None:
                out = draw_rows(*given, float(self.alpha[t]), q, lam, prior, None)
            else:
                nu, tau = self.rows.noise[t]
                out = draw_rows(*given, float(tau), q, lam, prior, None)
                p = (nu + counts) / (nu / tau + engine.get(out.misfit))
                out = draw_rows(*given, engine.take(p), q, lam, prior, None)
                precisions[:, t] = p[:, 0]
            u = engine.get(out.factors)
            left[:, t], bias[:, t] = u[:, :k] * root, u[:, k]
        row_bias = (self.scale * bias.mean(axis=1)).astype(dtype)
        return f.with_rows(left.reshape(n, s * k), row_bias, None, x.rows), self.rows.with_rows(bias, precisions)

    def shares(self, f: LowRank, i: int, j: int, seen: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, float]:
        """What the entries (i, seen) add to the mean of cell (i, j), one number each, and what is left; see ``BayesianMF.explain``."""
        s, k = self.size, f.k // self.size
        y, root = (values - self.mean) / self.scale, np.sqrt(self.scale / s)
        design = np.ones((s, len(seen) + 1, k + 1))
        design[:, :, :k] = f.right[[*seen, j]].reshape(-1, s, k).transpose(1, 0, 2) / root
        row = Observed(np.array([0, len(seen)]), seen, y, f.n)
        features = None if self.rows.link is None else pattern(row)
        total, base = np.zeros(len(seen)), 0.0
        for t in range(s):
            v, goal, lam = design[t, :-1], design[t, -1], self.rows.precision[t].astype(np.float64)
            centre = self.rows.mu[t].astype(np.float64)
            if features is not None and self.rows.link is not None:
                known = self.rows.link[t]
                centre = centre + np.asarray(features[:, : len(known)] @ known).ravel()
            weight = np.full(
                len(seen), float(self.alpha[t]) if self.rows.precisions is None else float(self.rows.precisions[i, t])
            )
            if self.columns.precisions is not None:
                weight = weight * self.columns.precisions[seen, t]
            pull = np.linalg.solve(lam + (v.T * weight) @ v, goal)
            total += (v @ pull) * weight * (y - self.columns.bias[seen, t])
            base += float(pull @ lam @ centre) + float(self.columns.bias[j, t])
        return total * self.scale / s, self.mean + self.scale * base / s

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values, for a model file."""
        arrays = {"alpha": self.alpha}
        for name in ("rows", "columns"):
            arrays |= {f"{name}.{n}": a for n, a in vars(getattr(self, name)).items() if a is not None}
        if self.thresholds is not None:
            arrays["thresholds"] = self.thresholds
        values: dict[str, Any] = {"mean": self.mean, "scale": self.scale, "chains": self.chains}
        if self.loss is not None:
            values["loss"] = self.loss.to_state()
        return arrays, values

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], values: dict[str, Any]) -> Posterior:
        sides = [
            SideDraws(**{n[len(name) + 1 :]: a for n, a in arrays.items() if n.startswith(f"{name}.")})
            for name in ("rows", "columns")
        ]
        loss = None if values.get("loss") is None else loss_from(values["loss"])
        return cls(
            sides[0], sides[1], arrays["alpha"], float(values["mean"]), float(values["scale"]), int(values["chains"]),
            arrays.get("thresholds"), loss,
        )  # fmt: skip
