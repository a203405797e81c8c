"""Rows under Gaussians with factor covariances, S = W W^T + diag(s), in float64; no n x n matrix is
formed.

With D the 0/1 mask of what is observed of a row, y = x - origin, d = D (y - (m - origin)) and
V = diag(1/s) W,

    M = I + W^T D V,   code z = M^-1 V^T d with covariance M^-1,   log |S| = sum D log s + log |M|,
    d^T S^-1 d = |d - D W z|^2_{1/s} + |z|^2

All M of some rows are one product of masks with the n x r(r+1)/2 products w_ja w_jb / s_j; complete
rows share one. What is missing is expected to be W z + m, so that the sums of ``FactorStatistics``
over rows that miss a column are moments of the codes of these rows, by one product as well.
"""

from __future__ import annotations

from typing import Any

from eckart.engines.protocol.mixtures import LOG_2PI, Gaussians


class Factors:
    """Components; ``logs`` keeps codes of its rows for what follows."""

    def __init__(self, lib: Any, theta: Gaussians, complete: bool, careful: bool):
        self.lib, self.complete, self.careful = lib, complete, careful
        assert theta.loadings is not None
        assert theta.origin is not None
        self.loadings, self.spread = lib.there(theta.loadings), lib.there(theta.spread)
        self.origin, self.shifts = lib.there(theta.origin), lib.there(theta.means - theta.origin)
        self.log_weights = lib.there(theta.log_weights)
        self.level = lib.xp.log(self.spread) + LOG_2PI
        k, n, r = theta.loadings.shape
        self.pairs, self.wider = lib.triangle(r), lib.triangle(r + 1)
        self.products = self.loadings[:, :, self.pairs[0]] * self.loadings[:, :, self.pairs[1]]
        # masks, deviations, matrices and, of all components, codes and their covariances; complete
        # rows share matrices and covariances
        own = 0 if complete else (5 + k) * r * r
        self.bytes_of_row = 8 * (8 * n + k * (r + 2) + own)

    def _unpacked(self, packed: Any, at: tuple[Any, Any], r: int) -> Any:
        """Symmetric r x r matrices from their lower triangles."""
        out = self.lib.zeros(packed.shape[0], r, r)
        out[:, at[0], at[1]] = packed
        out[:, at[1], at[0]] = packed
        return out

    def logs(self, rows: Any) -> Any:
        """rows x k."""
        xp, y = self.lib.xp, self.lib.wide(rows) - self.origin
        self.observed = None
        if not self.complete:
            observed = ~xp.isnan(y)
            self.observed, y = self.lib.wide(observed), xp.where(observed, y, 0.0)
        self.y, self.squares = y, y * y
        found = [self._posterior(z) for z in range(self.spread.shape[0])]
        self.codes, self.inverses = [each[1] for each in found], [each[2] for each in found]
        return xp.stack([each[0] for each in found], axis=1)

    def _posterior(self, z: int) -> tuple[Any, Any, Any]:
        """log weight + log density, codes, and the packed M^-1 of each row, or of all."""
        w, s, observed = self.loadings[z], self.spread[z], self.observed
        products, r = self.products[z] / s[:, None], w.shape[1]
        packed = products.sum(axis=0)[None] if observed is None else observed @ products
        m = self._unpacked(packed, self.pairs, r) + self.lib.eye(r)
        # no eigenvalue of M is below 1; where loadings are so large against s that rounding hides
        # the I, M looks singular
        root, back = self.lib.roots_of(m, 1.0, self.careful)
        inverse = back.mT @ back
        d = self.y - self.shifts[z]
        d = d if observed is None else d * observed
        pulled = d @ (w / s[:, None])
        if observed is None:
            codes, level = pulled @ inverse[0], self.level[z].sum()
            rest = d - codes @ w.T
        else:
            codes, level = (inverse @ pulled[:, :, None])[:, :, 0], observed @ self.level[z]
            rest = d - observed * (codes @ w.T)
        square = (rest * rest) @ (1 / s) + (codes * codes).sum(axis=1)
        logdet = 2 * self.lib.xp.log(self.lib.xp.linalg.diagonal(root)).sum(axis=1)
        logs = self.log_weights[z] - 0.5 * (level + logdet + square)
        return logs, codes, inverse[:, self.pairs[0], self.pairs[1]]

    def sums(self, _: Any, q: Any) -> tuple[Any, ...]:
        """counts, second, cross and square of the rows that ``logs`` has had."""
        found = [self._sums(z, q[:, z : z + 1]) for z in range(self.spread.shape[0])]
        return tuple(self.lib.xp.stack(list(each)) for each in zip(*found))

    def _sums(self, z: int, q: Any) -> tuple[Any, ...]:
        xp, codes, y, r = self.lib.xp, self.codes[z], self.y, self.codes[z].shape[1]
        one = xp.concat([codes, xp.ones_like(q)], axis=1)
        heavy = q * one
        cross, square = y.T @ heavy, (q.T @ self.squares)[0]
        if self.observed is None:
            inverse = self._unpacked(self.inverses[z], self.pairs, r)[0]
            second = one.T @ heavy
            second[:r, :r] = second[:r, :r] + q.sum() * inverse
            return second[r, r], second, cross, square
        # packed E[a a^T], a = (z, 1): the lower triangle of the codes' moments, then the codes and
        # 1, which are its last row
        square_of_codes = codes[:, self.pairs[0]] * codes[:, self.pairs[1]] + self.inverses[z]
        moments = xp.concat([square_of_codes, one], axis=1)
        second = self._unpacked(q.T @ moments, self.wider, r + 1)[0]
        # y is zero where nothing is observed
        missing = self._unpacked((q * (1 - self.observed)).T @ moments, self.wider, r + 1)
        guess = xp.concat([self.loadings[z], self.shifts[z][:, None]], axis=1)
        lifted = (missing @ guess[:, :, None])[:, :, 0]
        cross = cross + lifted
        square = square + (lifted * guess).sum(axis=1) + self.spread[z] * missing[:, r, r]
        return second[r, r], second, cross, square

    def filled(self, rows: Any, q: Any) -> tuple[Any, Any]:
        """Rows with E[x | observed] at missing entries and its variances, under the components
        together."""
        xp, y = self.lib.xp, self.y
        if self.observed is None:
            return self.lib.wide(rows), xp.zeros_like(y)
        twice = xp.where(self.pairs[0] == self.pairs[1], 1.0, 2.0)
        mean, square = xp.zeros_like(y), xp.zeros_like(y)
        for z in range(self.spread.shape[0]):
            guess = self.shifts[z] + self.codes[z] @ self.loadings[z].T
            packed = self.inverses[z] * self.lib.wide(twice)
            variance = self.spread[z] + packed @ self.products[z].T
            mean = mean + q[:, z : z + 1] * guess
            square = square + q[:, z : z + 1] * (variance + guess * guess)
        observed, variance = self.observed > 0, xp.clip(square - mean * mean, 0.0, None)
        full = xp.where(observed, self.lib.wide(rows), self.origin + mean)
        return full, xp.where(observed, 0.0, variance)
