"""Rows with gaps under a Gaussian of low rank on threads: the part of the dense family that PCA
with missing entries asks for."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.cpu.dense import thin
from eckart.engines.cpu.gap_patterns import by_gaps
from eckart.engines.host import Host, place
from eckart.engines.protocol import GapCodes, GapStatistics
from eckart.matrix import Matrix, Observed
from eckart.scheduler import run_lanes


class GapPrimitives:
    """Statistics, codes and expected entries of x_i ~ N(mean, W W^T + noise I), each row seen in
    part."""

    threads: int
    _over_rows: Any

    def gap_statistics(
        self, x: Matrix | Host, w: np.ndarray, mean: np.ndarray, noise: float
    ) -> GapStatistics:
        x = place(x)
        seen, weights = rows_by_gaps(x)
        return _gap_kernels(x).gap_statistics(seen, w, mean, noise, weights, self.threads)

    def gap_solve(self, stats: GapStatistics) -> tuple[np.ndarray, np.ndarray]:
        size = stats.gram.shape[1]
        a, misfit = np.empty(stats.cross.shape), np.empty(len(stats.cross))

        def step(_: None, part: tuple[int, int], scratch: dict) -> None:
            at = slice(*part)
            gram, cross = stats.gram[at], stats.cross[at]
            ridge = 1e-12 * np.trace(gram, axis1=1, axis2=2)[:, None, None] / size * np.eye(size)
            a[at] = np.linalg.solve(gram + ridge, cross[:, :, None])[:, :, 0]
            image = np.matmul(gram, a[at][:, :, None])[:, :, 0]
            misfit[at] = stats.square[at] + np.einsum("jr,jr->j", a[at], image - 2 * cross)

        parts = thin.parts_of(len(a), size**3)
        run_lanes(parts, [None] * len(parts), step, self.threads)
        return a, misfit

    def gap_codes(
        self, x: Matrix | Host, w: np.ndarray, mean: np.ndarray, noise: float
    ) -> GapCodes:
        x = place(x)
        return _gap_kernels(x).gap_codes(x.matrix, w, mean, noise, self.threads)

    def gap_expect(
        self, x: Matrix | Host, u: np.ndarray, gain: np.ndarray, mean: np.ndarray, noise: float
    ) -> np.ndarray:
        from eckart.engines.cpu.dense.missing_rows import expected_rows

        x = place(x)
        m, u = x.matrix, np.ascontiguousarray(u, np.float64)
        z = self.gap_codes(x, u * gain, mean, noise).codes
        out = np.empty(z.shape, x.dtype)
        self._over_rows(
            m, lambda a, b: expected_rows(m.indptr, m.indices, m.data, u, gain, mean, z, a, b, out)
        )
        return out


def rows_by_gaps(x: Host) -> tuple[Any, np.ndarray | None]:
    """The rows, with their weights, in an order in which those with the same gaps stand together,
    made once; as they are where most have gaps of their own."""
    if "rows by gaps" not in x.kept:
        m = x.matrix
        order, starts, _ = by_gaps(m.indptr, m.indices, m.n_columns)
        weights = x.weights
        if 2 * (len(starts) - 1) <= len(order):
            m, weights = (
                Observed.from_scipy(m.to_scipy()[order]),
                None if weights is None else weights[order],
            )
        x.kept["rows by gaps"] = m, weights
    return x.kept["rows by gaps"]


def _gap_kernels(x: Host) -> Any:
    """Mask products where many entries are observed, rows of entries where few are."""
    if (
        x.nnz >= 0.05 * x.matrix.shape[0] * x.shape[1]
    ):  # from about here BLAS on zeros is quicker than scalars on entries
        from eckart.engines.cpu.dense import missing_masks

        return missing_masks
    from eckart.engines.cpu.dense import missing_rows

    return missing_rows
