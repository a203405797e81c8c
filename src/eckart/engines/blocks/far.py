"""Numbers at the stored entries of a matrix in parts that nobody holds: they are known by how they
are made,

    scale a_ij + l_i . r_j,

the stored value a_ij with a factor, and low rank. So is all that descent on matrices of low rank
meets at the entries: the data, a residual, a direction. Sums, differences and multiples of such
numbers are such numbers again; products with them are one pass over the parts, which make them
where the entries are. What is not of this form is fetched (``np.asarray``), one number for each
entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eckart.engines.host import ArrayOperators, Host


@dataclass(frozen=True, eq=False)
class FarEntries(ArrayOperators):
    """``left`` has a row for each row of the matrix ``x``, ``right`` one for each column; ``dtype``
    is the precision in which they are made."""

    x: Any
    scale: float
    left: np.ndarray
    right: np.ndarray
    dtype: np.dtype

    ndim = 1

    @property
    def shape(self) -> tuple[int]:
        return (self.x.nnz,)

    def __len__(self) -> int:
        return self.x.nnz

    size = property(__len__)

    def astype(self, dtype: Any, copy: bool = True) -> FarEntries:
        return replace(self, dtype=np.dtype(dtype))

    def made(
        self, do: Callable[..., Any], join: str, shared: dict[str, Any], own: dict[str, np.ndarray]
    ) -> Any:
        """``do(engine, block, entries, ...)`` of every block, joined; ``own`` are arrays with a row
        for each row of the matrix."""
        given = {"scale": self.scale, "right": self.right, "dtype": self.dtype, **shared}
        rows = {"left": self.left, **own}
        cut = [
            {name: a[p.first : p.first + p.rows] for name, a in rows.items()} for p in self.x.places
        ]
        return self.x.each(do, given, cut, join)

    def times(self, v: np.ndarray) -> np.ndarray:
        """R V, R the sparse matrix with these numbers."""
        return self.made(_times, "rows", {"v": v}, {})

    def times_t(self, y: np.ndarray) -> np.ndarray:
        """R^T Y."""
        return self.made(_times_t, "sum", {}, {"y": y})

    def dot(self, other: FarEntries) -> float:
        """The sum of products, in double precision."""
        if other is self:
            return float(self.made(_square, "sum", {}, {}))
        small_parts = {"other_scale": other.scale, "other_right": other.right}
        return float(self.made(_dot, "sum", small_parts, {"other_left": other.left}))

    def plus(self, factor: float, other: FarEntries) -> FarEntries:
        """These and the others times ``factor``."""
        dtype = np.result_type(self.dtype, other.dtype)
        left = np.hstack([self.left, dtype.type(factor) * other.left]).astype(dtype, copy=False)
        right = np.hstack([self.right, other.right]).astype(dtype, copy=False)
        return FarEntries(self.x, self.scale + factor * other.scale, left, right, dtype)

    def scaled(self, factor: float) -> FarEntries:
        return replace(self, scale=factor * self.scale, left=self.dtype.type(factor) * self.left)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = self.made(_values, "rows", {}, {})
        return found if dtype is None else found.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        if method == "__call__" and not named and len(inputs) == 2:
            a, b = inputs
            far = isinstance(a, FarEntries), isinstance(b, FarEntries)
            if all(far) and ufunc in (np.add, np.subtract):
                return a.plus(1.0 if ufunc is np.add else -1.0, b)
            if all(far) and ufunc is np.matmul:
                return a.dot(b)
            if far[0] and np.ndim(b) == 0 and ufunc in (np.multiply, np.true_divide):
                return a.scaled(float(b) if ufunc is np.multiply else 1.0 / float(b))
            if far[1] and np.ndim(a) == 0 and ufunc is np.multiply:
                return b.scaled(float(a))
        return getattr(ufunc, method)(
            *(np.asarray(a) if isinstance(a, FarEntries) else a for a in inputs), **named
        )

    def __array_function__(self, function: Any, _: Any, args: Any, named: Any) -> Any:
        if function is np.vdot and all(isinstance(a, FarEntries) for a in args):
            return args[0].dot(args[1])
        if function is np.linalg.norm and len(args) == 1 and not named:
            return float(np.sqrt(self.dot(self)))
        return function(*(np.asarray(a) if isinstance(a, FarEntries) else a for a in args), **named)


def stored(x: Any, scale: float, dtype: Any) -> FarEntries:
    """The stored values times ``scale``."""
    kind = np.dtype(dtype)
    return FarEntries(
        x, scale, np.zeros((x.shape[0], 0), kind), np.zeros((x.shape[1], 0), kind), kind
    )


def _sampled(x: Any, left: Any, right: Any) -> FarEntries:
    return FarEntries(x, 0.0, left, right, np.result_type(left, right))


def _residual(x: Any, data: Any, left: Any, right: Any) -> tuple[FarEntries, float] | None:
    if not isinstance(data, FarEntries):
        return None
    rest = data.plus(-1.0, _sampled(x, left, right))
    return rest, rest.dot(rest)


def _entry_times(x: Any, data: Any, v: Any) -> np.ndarray | None:
    return data.times(v) if isinstance(data, FarEntries) else None


PRIMITIVES: dict[str, Callable[..., Any]] = {
    "sampled": _sampled,
    "residual": _residual,
    "entry_times": _entry_times,
}
"""What primitives make of such numbers; None where they were given others."""


def _values(
    engine: Any, host: Host, scale: float, left: np.ndarray, right: np.ndarray, dtype: np.dtype
) -> np.ndarray:
    data = host.matrix.data.astype(dtype, copy=False) * dtype.type(scale) if scale else None
    if left.shape[1] == 0:
        return np.zeros(host.nnz, dtype) if data is None else data
    low = engine.sampled(
        host, np.ascontiguousarray(left, dtype), np.ascontiguousarray(right, dtype)
    )
    return low if data is None else data + low


def _times(engine: Any, host: Host, v: np.ndarray, **how: Any) -> np.ndarray:
    return engine.entry_times(host, _values(engine, host, **how), v)


def _times_t(engine: Any, host: Host, y: np.ndarray, **how: Any) -> np.ndarray:
    return engine.entry_times_t(
        host, engine.by_columns(host, _values(engine, host, **how)), np.ascontiguousarray(y)
    )


def _square(engine: Any, host: Host, **how: Any) -> float:
    wide = _values(engine, host, **how).astype(np.float64, copy=False)
    return float(wide @ wide)


def _dot(
    engine: Any,
    host: Host,
    other_scale: float,
    other_left: np.ndarray,
    other_right: np.ndarray,
    **how: Any,
) -> float:
    a = _values(engine, host, **how)
    b = _values(engine, host, other_scale, other_left, other_right, how["dtype"])
    return float(a.astype(np.float64, copy=False) @ b.astype(np.float64, copy=False))
