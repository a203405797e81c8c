"""Rows of scores with gaps under y = mean + W z + e, e ~ N(0, D), in float64 (``protocol.tables``).

O are the scores that a row sees, H its gaps, r = y - mean, P = (W W^T + D)^-1. Rows with the same
gaps share one small matrix, the smaller of two:

precision  the gaps are mean_H - P_HH^-1 P_HO r_O with the covariance P_HH^-1;
codes      with M = I + W_O^T D_O^-1 W_O they are mean_H + W_H M^-1 W_O^T D_O^-1 r_O with the
           covariance W_H M^-1 W_H^T + D_H.

The rest is the same for both. With c a complete row less the mean, its code is linear in c, the
square of what is seen is c^T P c, and a seen part J left out is expected to be y_J - Q_JJ^-1 (P
c)_J, Q the inverse of the covariance of what is seen.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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
        sums: list[Any] = []
        found: list[Any] = []
        heavy = None if weights is None else model.in_order(lib.given(weights))
        for at in model.parts():
            mask, y, alike, wild = model.rows(at)
            times = xp.ones_like(mask[:, 0]) if heavy is None else heavy[at]
            logs, second = mask.sum(axis=1) * np.log(2 * np.pi), lib.zeros(*model.precision.shape)
            for some in alike:
                spread, logdet = model.solve(some, mask, y)
                logs[some.rows] += logdet[some.of]
                model.add_spread(
                    second, some, spread, lib.sums_at(times[some.rows], some.of, len(spread))
                )
            z = y @ model.to_codes
            logs += ((y @ model.precision) * y).sum(axis=1)
            own = (
                times @ y,
                (y * times[:, None]).T @ y + second,
                times.sum(),
                -0.5 * (times @ logs),
                times @ wild,
            )
            sums = [a + b for a, b in zip(sums, own)] if sums else list(own)
            found.append(z)
        total, second, count, loglik, wild = lib.host(*sums)
        middle = np.asarray(mean, np.float64)
        second = second + np.outer(total, middle) + np.outer(middle, total)
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
        ends = np.asarray(parts).tolist()
        single = [a for a, b in ends if b == a + 1]
        found = []
        for at in model.parts():
            mask, y, alike, _ = model.rows(at)
            out = lib.zeros(*y.shape)
            for some in alike:
                spread, _ = model.solve(some, mask, y)
                full, seen = y[some.rows], mask[some.rows]
                pull, part = full @ model.precision, lib.copied(full)
                whole, left, right = model.inverse_of_seen(some, spread)
                if single:
                    own = xp.diagonal(whole)[single]
                    if left is not None:
                        own = own - (left[:, :, single] * right[:, :, single]).sum(axis=1)[some.of]
                    one = seen[:, single]
                    part[:, single] -= one * pull[:, single] / (one * own + (1 - one))
                for first, last in ends:
                    if last == first + 1:
                        continue
                    square = whole[first:last, first:last][None] + lib.zeros(1, 1, 1)
                    if left is not None:
                        square = square - left[:, :, first:last].mT @ right[:, :, first:last]
                        square = square[some.of]
                    one = seen[:, first, None, None]
                    square = one * square + (1 - one) * lib.eye(last - first)
                    away = lib.solved(square, pull[:, first:last, None])[:, :, 0]
                    part[:, first:last] -= one[:, 0] * away
                out[some.rows] = part
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


class _Alike(NamedTuple):
    """Rows with about as many gaps, and their distinct patterns: the pattern of each row; of each
    pattern its gaps, and where it has fewer than others seen columns in their stead (``some`` is 0
    there)."""

    rows: Any
    of: Any
    gaps: Any
    some: Any

    @classmethod
    def all_of(cls, lib: Any, mask: Any, runs: tuple[Any, Any]) -> list[_Alike]:
        """All rows of a part, by the next power of two of their gaps."""
        first, run = (lib.fetch(a) for a in runs)
        gaps = 1.0 - lib.fetch(mask)[first]
        counts = gaps.sum(axis=1).astype(int)
        order = np.argsort(-gaps, axis=1, kind="stable")
        sizes = np.where(counts > 0, 2 ** np.ceil(np.log2(np.maximum(counts, 1))), 0)
        found = []
        for size in np.unique(sizes):
            kinds = np.flatnonzero(sizes == size)
            rows = np.flatnonzero(np.isin(run, kinds))
            most = int(counts[kinds].max())
            at = order[kinds, :most]
            own, some = np.searchsorted(kinds, run[rows]), np.take_along_axis(gaps[kinds], at, 1)
            rows, own, at = (lib.array(a, np.int64) for a in (rows, own, at))
            found.append(cls(rows, own, at, lib.given(some)))
        return found


class _Scores:
    """The rows of a table in the order of their gaps, and the model."""

    def __init__(
        self, lib: Any, x: Any, factors: Any, mean: Any, noise: Any, width: Any, codes: Any
    ):
        self.lib = lib
        x = lib.placed(x)
        self.x, _ = lib.by_gaps(x)
        self.order = lib.gap_order(x)
        w, own = np.asarray(factors, np.float64), np.asarray(noise, np.float64)
        scaled = w / own[:, None]
        square = np.eye(w.shape[1]) + scaled.T @ w
        to_codes = np.linalg.solve(square, scaled.T).T
        precision = np.diag(1 / own) - to_codes @ scaled.T
        self.logdet = float(np.linalg.slogdet(square)[1] + np.log(own).sum())
        self.w, self.mean, self.noise, self.scaled, self.to_codes, self.precision = (
            lib.given(a) for a in (w, mean, own, scaled, to_codes, (precision + precision.T) / 2)
        )
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

    def parts(self) -> list[slice]:
        """Ranges of rows for which there is room."""
        rows, (n, k) = self.x.shape[0], self.w.shape
        room = self.lib.chunk // (8 * (5 * n + 4 * k * k + 2 * n * k + 1))
        step = int(np.clip(room, self.lib.least_rows, MOST_ROWS))
        return [slice(a, min(a + step, rows)) for a in range(0, max(rows, 1), step)]

    def rows(self, at: slice) -> tuple[Any, Any, list[_Alike], Any]:
        """Mask, scores less their mean (drawn in by the widths, 0 at gaps), rows by their gaps, and
        what each score has beyond its parabola."""
        xp = self.lib.xp
        block = gap_block(self.lib, self.x, at.start, at.stop, True)
        y, wild = block.values - self.mean, xp.zeros_like(block.values)
        if self.width is not None:
            there = 0.0 if self.codes is None else self.codes[at] @ self.w.T
            beyond = block.mask * (xp.abs(y - there) > self.width)
            end = xp.where(xp.isinf(self.width), 0.0, self.width)
            wild = beyond * end * (xp.abs(y - there) - end)
            y = there + xp.clip(y - there, -self.width, self.width)
        name = "rows alike", at.start, at.stop
        if name not in self.x.kept:
            self.x.kept[name] = _Alike.all_of(self.lib, block.mask, block.runs)  # type: ignore[arg-type]
        return block.mask, block.mask * y, self.x.kept[name], wild

    def by_codes(self, alike: _Alike) -> bool:
        return alike.gaps.shape[1] > self.w.shape[1]

    def solve(self, alike: _Alike, mask: Any, y: Any) -> tuple[Any, Any]:
        """Fill the gaps of these rows of y; the covariance of the gaps (or of the codes) of each
        pattern, and the log determinant of that of its seen scores."""
        lib, (rows, of, gaps, some) = self.lib, alike
        full = y[rows]
        if self.by_codes(alike):
            kinds = lib.zeros(*gaps.shape[:1], len(self.noise)) + 1.0
            kinds[lib.arange(len(gaps))[:, None], gaps] = 1.0 - some
            a, b = lib.triangle(self.w.shape[1])
            m = lib.zeros(len(gaps), *self.w.shape[1:] * 2)
            m[:, a, b] = m[:, b, a] = kinds @ (self.scaled[:, a] * self.w[:, b])
            spread, logdet = lib.inverses(m + lib.eye(self.w.shape[1]))
            z = (spread[of] @ (full @ self.scaled)[:, :, None])[:, :, 0]
            y[rows] = full + (1 - mask[rows]) * (z @ self.w.T)
            return spread, logdet + kinds @ lib.xp.log(self.noise)
        square = self.precision[gaps[:, :, None], gaps[:, None, :]]
        square = square * (some[:, :, None] * some[:, None, :])
        square = square + (1 - some)[:, :, None] * lib.eye(gaps.shape[1])
        spread, logdet = lib.inverses(square)
        at, there = gaps[of], some[of]
        pull = lib.along(full @ self.precision, at) * there
        y[rows[:, None], at] -= there * (spread[of] @ pull[:, :, None])[:, :, 0]
        return spread, logdet + self.logdet

    def add_spread(self, second: Any, alike: _Alike, spread: Any, times: Any) -> None:
        """Add the covariance of the gaps of each pattern, as often as it counts."""
        n, gaps, some = len(self.noise), alike.gaps, alike.some
        if self.by_codes(alike):
            kinds = self.lib.zeros(len(gaps), n)
            kinds[self.lib.arange(len(gaps))[:, None], gaps] = some
            left = (kinds * times[:, None])[:, :, None] * (self.w @ spread)
            right = kinds[:, :, None] * self.w
            second += left.swapaxes(1, 2).reshape(-1, n).T @ right.swapaxes(1, 2).reshape(-1, n)
            at = self.lib.arange(n)
            second[at, at] += self.noise * (times @ kinds)
            return
        each = spread * (some[:, :, None] * (some * times[:, None])[:, None, :])
        places = gaps[:, :, None] * n + gaps[:, None, :]
        second += self.lib.sums_at(each.reshape(-1), places.reshape(-1), n * n).reshape(n, n)

    def inverse_of_seen(self, alike: _Alike, spread: Any) -> tuple[Any, Any, Any]:
        """A, B and C of each pattern, Q = A - B^T C."""
        if self.by_codes(alike):
            return (
                self.lib.xp.diag(1 / self.noise),
                self.scaled.T[None] + 0 * spread[:, :, :1],
                spread @ self.scaled.T,
            )
        if not alike.gaps.shape[1]:
            return self.precision, None, None
        left = self.precision[alike.gaps] * alike.some[:, :, None]
        return self.precision, left, spread @ left
