"""Rows of scores with gaps under y = mean + W z + e, e ~ N(0, D), in float64 (``protocol.tables``).

With S_i the 0/1 mask of a row, M_i = I + W^T D^-1 S_i W and m_i = M_i^-1 W^T D^-1 S_i (y_i - mean),
its gaps are mean + W m_i; they have the covariance W M_i^-1 W^T + D. Rows with the same gaps share
M_i and that covariance, of which a sum over rows is one product of masked W L^-T, M_i = L L^T.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.arrays.gaps import MOST_ROWS, gap_block
from eckart.engines.protocol.series import FactorRule, FilledMoments


class ArrayTables:
    """The family ``tables``."""

    lib: Any

    def filled_moments(
        self,
        x: Any,
        factors: np.ndarray,
        mean: np.ndarray,
        noise: np.ndarray,
        *,
        width: np.ndarray | None = None,
        codes: Any = None,
        weights: np.ndarray | None = None,
    ) -> tuple[FilledMoments, Any]:
        lib, xp = self.lib, self.lib.xp
        model = _Scores(lib, x, factors, mean, noise, width, codes)
        n, k = model.w.shape
        sums: list[Any] = []
        found: list[Any] = []
        heavy = None if weights is None else model.in_order(lib.given(weights))
        for at in model.parts(n * k):
            mask, y, runs, wild = model.rows(at)
            first, run = runs
            one = xp.ones_like(mask[:, 0])
            times = one if heavy is None else heavy[at]
            z, rest, logdet, back = model.codes_of(mask, y, runs)
            away = mask * y + (1 - mask) * (z @ model.w.T)
            of_run = lib.wide(lib.arange(first.shape[0])[:, None] == run) @ times
            gaps = (1 - mask[first]) * xp.sqrt(of_run)[:, None]
            roots = (gaps[:, :, None] * (model.w @ back.mT)).swapaxes(0, 1).reshape(n, -1)
            logs = mask @ xp.log(2 * np.pi * model.noise) + logdet[run]
            logs = logs + (rest * rest / model.noise).sum(axis=1) + (z * z).sum(axis=1)
            own = (
                times @ away,
                (away * times[:, None]).T @ away + roots @ roots.T,
                model.noise * (gaps * gaps).sum(axis=0),
                times.sum(),
                -0.5 * (times @ logs),
                times @ wild,
            )
            sums = [a + b for a, b in zip(sums, own)] if sums else list(own)
            found.append(z)
        total, second, loose, count, loglik, wild = lib.host(*sums)
        middle = np.asarray(mean, np.float64)
        second = second + np.diag(loose) + np.outer(total, middle) + np.outer(middle, total)
        second += count * np.outer(middle, middle)
        moments = FilledMoments(total + count * middle, second, float(loglik), wild)
        return moments, lib.tall(model.as_given(xp.concat(found)))

    def left_out_rows(
        self,
        x: Any,
        factors: np.ndarray,
        mean: np.ndarray,
        noise: np.ndarray,
        parts: np.ndarray,
        *,
        width: np.ndarray | None = None,
        codes: Any = None,
    ) -> Any:
        lib, xp = self.lib, self.lib.xp
        model = _Scores(lib, x, factors, mean, noise, width, codes)
        found = []
        for at in model.parts(0):
            mask, y, runs, _ = model.rows(at)
            z = model.codes_of(mask, y, runs)[0]
            out = mask * y + (1 - mask) * (z @ model.w.T)
            for first, last in np.asarray(parts).tolist():
                less = lib.copied(mask)
                less[:, first:last] = 0.0
                z = model.codes_of(less, y, runs)[0]
                seen = mask[:, first:last]
                own = z @ model.w[first:last].T
                out[:, first:last] = xp.where(seen > 0, own, out[:, first:last])
            found.append(out + model.mean)
        return lib.tall(model.as_given(xp.concat(found)))

    def factor_steps(
        self, cov: np.ndarray, factors: np.ndarray, noise: np.ndarray, rule: FactorRule
    ) -> tuple[np.ndarray, np.ndarray]:
        """On the host: so few numbers."""
        w, own = np.asarray(factors, np.float64), np.asarray(noise, np.float64)
        one = np.eye(w.shape[1])
        for _ in range(rule.steps):
            scaled = (w / own[:, None]).T
            spread = np.linalg.inv(one + scaled @ w)
            b = spread @ scaled
            cb = cov @ b.T
            zz = b @ cb + spread
            zz = (zz + zz.T) / 2
            w = np.linalg.solve(zz + rule.l2 / rule.rows * one, cb.T).T
            left = rule.rows * (np.diagonal(cov) - (w * cb).sum(axis=1)) + rule.more
            before, own = own, np.maximum(left / (rule.rows + rule.degrees), rule.least)
            root = np.linalg.cholesky(zz)
            wider = w @ root
            cost = rule.l2 * float(((wider**2 - w**2).sum(axis=1) / own).sum())
            logdet = 2 * np.log(np.diagonal(root)).sum()
            if rule.rows * (np.trace(zz) - len(zz) - logdet) >= cost:
                w = wider
            if np.abs(own / before - 1.0).max() <= rule.still:
                break
        return w, own


class _Scores:
    """The rows of a table in the order of their gaps, and the model."""

    def __init__(
        self, lib: Any, x: Any, factors: Any, mean: Any, noise: Any, width: Any, codes: Any
    ):
        self.lib = lib
        x = lib.placed(x)
        self.x, _ = lib.by_gaps(x)
        self.order = lib.gap_order(x)
        self.w, self.mean, self.noise = (lib.given(a) for a in (factors, mean, noise))
        self.scaled = self.w / self.noise[:, None]
        a, b = self.pairs = lib.triangle(self.w.shape[1])
        self.products = self.scaled[:, a] * self.w[:, b]
        self.width = None if width is None else lib.given(width)
        self.codes = None if codes is None else self.in_order(lib.given(codes))

    def in_order(self, a: Any) -> Any:
        return a if self.order is None else a[self.order]

    def as_given(self, a: Any) -> Any:
        """Numbers of rows in the order in which these came."""
        if self.order is None:
            return a
        out = self.lib.xp.empty_like(a)
        out[self.order] = a
        return out

    def parts(self, more: int) -> list[slice]:
        """Ranges of rows for which there is room, ``more`` numbers for each run among them."""
        rows, (n, k) = self.x.shape[0], self.w.shape
        room = self.lib.chunk // (8 * (5 * n + 5 * k * k + more + 1))
        step = int(np.clip(room, self.lib.least_rows, MOST_ROWS))
        return [slice(a, min(a + step, rows)) for a in range(0, max(rows, 1), step)]

    def rows(self, at: slice) -> tuple[Any, Any, tuple[Any, Any], Any]:
        """Mask, scores less their mean (drawn in by the widths), runs of rows with the same gaps,
        and what each score has beyond its parabola."""
        xp = self.lib.xp
        block = gap_block(self.lib, self.x, at.start, at.stop, True)
        y, wild = block.values - self.mean, xp.zeros_like(block.values)
        if self.width is not None:
            there = 0.0 if self.codes is None else self.codes[at] @ self.w.T
            beyond = block.mask * (xp.abs(y - there) > self.width)
            end = xp.where(xp.isinf(self.width), 0.0, self.width)
            wild = beyond * end * (xp.abs(y - there) - end)
            y = there + xp.clip(y - there, -self.width, self.width)
        return block.mask, block.mask * y, block.runs, wild  # type: ignore[return-value]

    def codes_of(self, mask: Any, y: Any, runs: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
        """m of every row and what it leaves of the scores; log |M| and L^-1 of every run."""
        lib, k, (first, run) = self.lib, self.w.shape[1], runs
        kinds, (a, b) = mask[first], self.pairs
        m = lib.zeros(kinds.shape[0], k, k)
        m[:, a, b] = m[:, b, a] = kinds @ self.products
        root, back = lib.roots_of(m + lib.eye(k), 0.0, True)
        logdet = 2 * lib.xp.log(lib.xp.linalg.diagonal(root)).sum(axis=1)
        inverse = back.mT @ back
        z = (inverse[run] @ ((mask * y) @ self.scaled)[:, :, None])[:, :, 0]
        return z, mask * (y - z @ self.w.T), logdet, back
