"""Where a factorization A ~ W H begins, and a cheap stretch of the way for least squares.

``nndsvd``      the leading singular triplets u s v^T, each with the larger of its two non-negative parts u+ v+^T or u- v-^T (Boutsidis and Gallopoulos 2008);
``nndsvda``     its zeros filled with sqrt(mean of A / k), about the size of an entry of W and H (a tenth of it for least squares);
``random``      H of |normal| numbers of that size, W constant (it is solved first);
``compressed``  the singular vectors come from a sketch A ~ B Y^T of a few more than k columns. A sweep on the sketch costs (rows + columns) k^2 instead of
                rows x columns x k, so the first sweeps run there; what the sketch left out is made good by the sweeps on A that follow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from eckart.engines.protocol import Engine, Totals
from eckart.errors import InputError, wrong
from eckart.explain.parts.loop import alternate
from eckart.explain.parts.sides import Half, Penalties, Shared, _gram
from eckart.matrix import Counts, Dense, Observed
from eckart.reduce.krylov import block_krylov
from eckart.rng import normal

OVERSAMPLE, STRETCH = 10, 100
FILL = {"frobenius": 0.1, "kl": 1.0}
LARGE = 2**21
"""Entries from which one round over the data has to do for a sketch."""
WORTH = 6
"""The sketch must be this many times smaller than the data."""


class Start(NamedTuple):
    """W, H^T, and the sketch (B, Y) they came from, where there is one."""

    left: np.ndarray
    right: np.ndarray
    sketch: tuple[np.ndarray, np.ndarray] | None = None


def begin(
    x: Dense | Counts | Observed,
    k: int,
    init: str | None,
    totals: Totals,
    engine: Engine,
    rng: np.random.Generator,
    weights: np.ndarray | None = None,
    loss: str = "frobenius",
) -> Start:
    """Factors to start from."""
    n = x.shape[1]
    weight = float(totals.rows if weights is None else weights.sum())
    few = k > min(totals.rows, n)
    if init is None:
        init = "random" if few or isinstance(x, Observed) else "nndsvda"
    if few and init != "random":
        raise InputError(
            f"init={init!r} came with n_components={k}, wanted at most {min(totals.rows, n)} for data of {totals.rows} rows and {n} columns; use init='random'"
        )
    cells = weight * n
    if isinstance(x, Observed):
        cells = float(x.nnz if weights is None else weights @ x.row_counts())
    mean = totals.total / cells if cells else 0.0
    if init == "random":
        size = np.sqrt(mean / k)
        right = np.abs(normal(rng, (n, k), x.dtype)) * x.dtype.type(size)
        return Start(np.full((totals.rows, k), size, x.dtype), right)
    if init not in ("nndsvd", "nndsvda"):
        raise wrong("init", init, "None, 'random', 'nndsvd', 'nndsvda' or 'custom'")
    basis, images = sketch(x, k, engine, rng, weights)
    left, right = nndsvd(basis, images, k, weights)
    if init == "nndsvda":
        left[left == 0] = right[right == 0] = FILL[loss] * np.sqrt(mean / k)
    return Start(left, right, None if isinstance(x, Observed) else (images, basis))


def sketch(
    x: Dense | Counts | Observed, k: int, engine: Engine, rng: np.random.Generator, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Y with orthonormal columns near the leading right singular vectors of D^1/2 A, and B = A Y; unknown entries count as zero."""
    n, most = x.shape[1], min(k + OVERSAMPLE, x.shape[1])
    if isinstance(x, Dense):
        block = normal(rng, (n, most), x.dtype)
        for _ in range(1 if (x.shape[0] or LARGE) * n >= LARGE else 4):
            found = engine.orth(engine.gram_times(x, block, None, weights))
            block = found if found.shape[1] else block
        return block, engine.times(x, block, None)
    whole = Counts(x.indptr, x.indices, x.data, x.n_columns)
    placed: Any = engine.tiled(whole)
    found = block_krylov(
        lambda v: engine.gram_times(placed, v, None, weights),
        n, most, dtype=x.dtype, rng=rng, engine=engine, block=min(n, max(8, k // 3)), tol=1e-4, max_steps=30,
    ).vectors  # fmt: skip
    return found, engine.times(whole, found, None)


def nndsvd(basis: np.ndarray, images: np.ndarray, k: int, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """W and H^T from the sketch A ~ B Y^T; a component without a singular value is zero."""
    square, turn = np.linalg.eigh(_gram(images, weights, 0.0))
    size = np.sqrt(np.maximum(square[::-1][:k], 0.0))
    turn = turn[:, ::-1][:, :k]
    kept = size > 1e-6 * max(float(size.max(initial=0.0)), 1e-300)
    u = images @ (turn * np.where(kept, 1 / np.where(kept, size, 1.0), 0.0)).astype(images.dtype)
    v = basis @ turn.astype(basis.dtype)
    left, right = np.zeros((len(u), k), u.dtype), np.zeros((len(v), k), v.dtype)
    w = None if weights is None else weights.astype(np.float64)
    for c in range(len(size)):
        if not kept[c]:
            continue
        best = (0.0, None, None)
        for sign in (1, -1):
            x, y = np.maximum(sign * u[:, c], 0), np.maximum(sign * v[:, c], 0)
            a = np.sqrt(float((x.astype(np.float64) ** 2).sum() if w is None else w @ x.astype(np.float64) ** 2))
            b = float(np.linalg.norm(y))
            if a * b > best[0]:
                best = (a * b, x / x.dtype.type(a), y / y.dtype.type(b))
        if best[1] is not None:
            scale = u.dtype.type(np.sqrt(size[c] * best[0]))
            left[:, c], right[:, c] = scale * best[1], scale * best[2]
    for factor in (left, right):
        factor[factor < 1e-6 * factor.max(initial=0.0)] = 0
    return left, right


def worthwhile(x: Any, k: int) -> bool:
    """Whether sweeps on a sketch are much cheaper than on the data."""
    return isinstance(x, Dense) and (x.shape[0] or 0) * x.shape[1] > WORTH * sum((x.shape[0] or 0, x.shape[1])) * (
        k + OVERSAMPLE
    )


@dataclass
class SketchSides(Shared):
    """Least squares on the sketch B Y^T in place of A."""

    images: np.ndarray = field(kw_only=True)
    basis: np.ndarray = field(kw_only=True)

    def rows(self, left: np.ndarray, right: np.ndarray, fast: bool = False, still: bool = False) -> Half:
        l1, l2 = self.penalties.of_left()
        pull = self.engine.outer(self.images, self.engine.inner(self.basis, right))
        pull -= pull.dtype.type(l1)
        found = self.engine.hals_rows(_gram(right, None, l2), pull, left, sweeps=self.sweeps, weights=self.weights)
        return self._half(found, self.scale + self.cost_right(right))

    def columns(self, left: np.ndarray, right: np.ndarray, fast: bool = False, still: bool = False) -> Half:
        m1, m2 = self.penalties.of_right()
        heavy = left if self.weights is None else left * self.weights[:, None].astype(left.dtype)
        cross = self.engine.outer(self.basis, self.engine.inner(self.images, heavy))
        cross -= cross.dtype.type(m1)
        found = self.engine.hals_rows(_gram(left, self.weights, m2), cross, right, sweeps=self.sweeps)
        return self._half(found, self.scale + self.cost_left(left))


def compressed(
    start: Start, totals: Totals, penalties: Penalties, engine: Engine, weights: np.ndarray | None, tol: float
) -> tuple[np.ndarray, np.ndarray, int]:
    """Sweeps on the sketch until their residual is below ``tol``, and how many."""
    assert start.sketch is not None
    images, basis = start.sketch
    sides = SketchSides(engine, totals, penalties, weights, images=images, basis=basis)
    state, _ = alternate(sides, start.left, start.right, tol=tol, max_iter=STRETCH, leap=True)
    return state.left, state.right, state.sweeps
