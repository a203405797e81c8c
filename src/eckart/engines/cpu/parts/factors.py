"""Arithmetic on the factors of non-negative factorization: sums over their rows, and what is put,
drawn or cut in them."""

from __future__ import annotations

from functools import reduce

import numpy as np

from eckart.engines.arrays.parts import ArrayParts
from eckart.engines.cpu.dense.thin import by_rows, cuts_of
from eckart.engines.cpu.parts.ranges import Ranges, real_columns, whole_registers
from eckart.engines.cpu.small import or_arrays_on_factor
from eckart.engines.host import Host, place
from eckart.engines.protocol import FactorSums, SignSums
from eckart.loading import lazy
from eckart.matrix import Matrix

pool = lazy("eckart.engines.cpu.native.pool")
products = lazy("eckart.engines.cpu.native.products")
factor_kernels = lazy("eckart.engines.cpu.parts.kernels")


class FactorPrimitives(Ranges):
    """Of a factor alone, on ranges of its rows."""

    def factor_mass(self, factor: np.ndarray, x: Host | Matrix | None = None) -> np.ndarray:
        f, weights = np.asarray(factor), None if x is None else place(x).weights

        def mass(a: int, b: int) -> np.ndarray:
            return (
                f[a:b].sum(axis=0, dtype=np.float64) if weights is None else weights[a:b] @ f[a:b]
            )

        return reduce(np.add, self._each(len(f), 32 * f.shape[1], mass), np.zeros(f.shape[1]))

    @or_arrays_on_factor(ArrayParts)
    def factor_sums(self, factor: np.ndarray, x: Host | Matrix | None = None) -> FactorSums:
        f, weights, k = np.asarray(factor), None if x is None else place(x).weights, factor.shape[1]
        f = by_rows(f, f.dtype)
        cuts = cuts_of(len(f), k * (k + 8), 8 * k * k)
        count = max(1, len(cuts) - 1)
        squares, mass, ends = (
            np.zeros((count, k, k), f.dtype),
            np.zeros((count, k)),
            np.zeros((count, 2, k)),
        )
        ends[:, 0], ends[:, 1] = np.inf, -np.inf
        by = np.empty(0) if weights is None else np.ascontiguousarray(weights, np.float64)
        if f.size:
            given = (
                cuts,
                f,
                by,
                products.blas(f.dtype),
                products.scalars(f.dtype, 1.0, 1.0).ctypes.data,
                squares,
                mass,
                ends,
            )
            pool.run_parts(factor_kernels.sums_part, count, given, self.threads)
        square = squares.sum(axis=0, dtype=np.float64)
        return FactorSums(
            mass.sum(axis=0), square, float(ends[:, 0].min(initial=np.inf)), ends[:, 1].max(axis=0)
        )

    def sign_sums(self, factor: np.ndarray, x: Host | Matrix | None = None) -> SignSums:
        f, weights, k = np.asarray(factor), None if x is None else place(x).weights, factor.shape[1]

        def sums(a: int, b: int) -> SignSums:
            parts = [np.maximum(sign * f[a:b].astype(np.float64), 0) for sign in (1, -1)]
            squares = [
                np.einsum("ij,ij->j", p, p if weights is None else weights[a:b, None] * p)
                for p in parts
            ]
            return SignSums(
                np.array(squares), np.array([p.max(axis=0, initial=0.0) for p in parts])
            )

        return reduce(
            SignSums.merge, self._each(len(f), 16 * k, sums), SignSums(*np.zeros((2, 2, k)))
        )

    def rectified(
        self, factor: np.ndarray, scale: np.ndarray, least: float = 0.0, fill: float = 0.0
    ) -> np.ndarray:
        s = scale.astype(factor.dtype)

        def rows(a: int, b: int, out: np.ndarray) -> None:
            np.multiply(factor[a:b], s, out=out)
            out[~(out > factor.dtype.type(least))] = fill

        return self._mapped(factor, rows)

    def sprinkled(self, factor: np.ndarray, size: float, seed: int) -> np.ndarray:
        small = self.normal(seed, factor.shape, np.float64)  # type: ignore[attr-defined]

        def rows(a: int, b: int, out: np.ndarray) -> None:
            out[:] = np.where(factor[a:b] > 0, factor[a:b], size * np.abs(small[a:b]))

        return self._mapped(factor, rows)

    def projected_rows(self, pull: np.ndarray, inverse: np.ndarray, l1: float) -> np.ndarray:
        def rows(a: int, b: int, out: np.ndarray) -> None:
            np.maximum(
                (pull[a:b].astype(np.float64) - l1) @ inverse, 0, out=out, casting="same_kind"
            )

        return self._mapped(pull, rows)

    @or_arrays_on_factor(ArrayParts)
    def leap(self, new: np.ndarray, old: np.ndarray, stride: float) -> np.ndarray:
        u, v, dtype = whole_registers(new), whole_registers(old), new.dtype
        if u.shape != v.shape:
            u, v = np.asarray(new), np.asarray(old)

        u, v, out = (
            np.ascontiguousarray(u),
            np.ascontiguousarray(v, dtype),
            np.empty(u.shape, dtype),
        )
        cuts = cuts_of(len(u), 32 * u.shape[1])  # bound by memory, not by sums
        pool.run_parts(
            factor_kernels.leap_part,
            len(cuts) - 1,
            (cuts, u, v, dtype.type(stride), out),
            self.threads,
        )
        return real_columns(out, new.shape[1])

    def cleaned(self, factor: np.ndarray, mass: np.ndarray, share: float) -> np.ndarray:
        f, heavy = np.asarray(factor), mass.astype(factor.dtype)

        def rows(a: int, b: int, out: np.ndarray) -> None:
            np.multiply(f[a:b], heavy, out=out)
            small = ~(out > share * out.sum(axis=1, keepdims=True))
            out[:] = f[a:b]
            out[small] = 0

        return self._mapped(f, rows)
