"""Where a factorization A ~ W H begins, and a cheap stretch of the way for least squares.

``nndsvd``      the leading singular triplets u s v^T, each with the larger of its two non-negative
parts u+ v+^T or u- v-^T (Boutsidis and Gallopoulos 2008);
``nndsvda``     its zeros filled with sqrt(mean of A / k), about the size of an entry of W and H (a
tenth of it for least squares), or as the next where k is
                above the rank of A;
``nndsvdar``    its zeros filled with small random numbers of that size in place of one number;
``random``      H of |normal| numbers of that size, W constant (it is solved first);
``compressed``  the singular vectors come from a sketch A ~ B Y^T of a few more than k columns. A
sweep on the sketch costs (rows + columns) k^2 instead of
                rows x columns x k, so the first sweeps run there; what the sketch left out is made
                good by the sweeps on A that follow.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from eckart.decompositions import eigh
from eckart.engines.protocol import Engine, Placed, Tall
from eckart.errors import InputError
from eckart.explain.parts.loop import alternate
from eckart.explain.parts.sides import SWEEPS, FactorSides, SquareSides
from eckart.fit import has_room
from eckart.reduce.krylov import block_krylov
from eckart.rng import normal

OVERSAMPLE, STRETCH = 10, 100
"""Columns of a sketch beyond k, as is usual for random projections; sweeps on it at most."""
FILL = {"frobenius": 0.1, "kl": 1.0, "beta": 1.0}
"""Share of the size of an entry that fills zeros: coordinate descent can leave zero, multiplicative
steps cannot."""
LARGE = 2**21
"""Entries from which one round over the data has to do for a sketch."""
WORTH = 6
"""The sketch must be this many times smaller than the data."""
NOISE = 1e-6
"""Singular values, and entries of a start, below this share of the largest are rounding."""


class Start(NamedTuple):
    """W, H^T, and the sketch (B, Y) they came from, where there is one."""

    left: Tall
    right: Tall
    sketch: tuple[Tall, Tall] | None = None


def begin(sides: FactorSides, k: int, init: str | None, rng: np.random.Generator) -> Start:
    """Factors to start from."""
    engine, x, totals, n = sides.engine, sides.x, sides.totals, sides.x.shape[1]
    few = k > min(totals.rows, n)
    chosen = init is None
    if init is None:
        init = "random" if few or x.kind == "observed" else "nndsvda"
    if few and init != "random":
        raise too_many(init, k, totals.rows, n)
    size = float(np.sqrt(totals.total / totals.cells / k)) if totals.cells else 0.0
    if init == "random":
        return _random(sides, k, size, rng)
    images, basis = sketch(sides, k, rng)
    fill = FILL[sides.loss] * size if init in ("nndsvda", "nndsvdar") else 0.0
    left, right, whole = nndsvd(engine, x, images, basis, k, 0.0 if init == "nndsvdar" else fill)
    if chosen and not whole:
        return _random(sides, k, size, rng)
    # components filled with one number would be the same component, and stay so
    if init == "nndsvda" and not whole:
        init, (left, right, _) = "nndsvdar", nndsvd(engine, x, images, basis, k, 0.0)
    if init == "nndsvdar":
        seeds = int(rng.integers(2**31)), int(rng.integers(2**31))
        left, right = (engine.sprinkled(f, fill, seed) for f, seed in zip((left, right), seeds))
    return Start(left, right, None if x.kind == "observed" else (images, basis))


def too_many(init: str, k: int, rows: int, columns: int) -> InputError:
    """The error for a start by singular vectors of which there are fewer than components."""
    return InputError(
        f"init = {init!r} can only be used when n_components <= min(n_samples, n_features), got "
        f"n_components={k} for {rows} rows and {columns} columns. Use init='random'.",
        code="invalid.init",
    )


def _random(sides: FactorSides, k: int, size: float, rng: np.random.Generator) -> Start:
    """W of one number, H of random ones."""
    x = sides.x
    right = np.abs(normal(rng, (x.shape[1], k), x.dtype)) * x.dtype.type(size)
    return Start(
        sides.engine.take(np.full((sides.totals.rows, k), size, x.dtype)), sides.engine.take(right)
    )


def sketch(sides: FactorSides, k: int, rng: np.random.Generator) -> tuple[Tall, Tall]:
    """B = A Y, and Y with orthonormal columns near the leading right singular vectors of D^1/2 A;
    unknown entries count as zero."""
    engine, x = sides.engine, sides.engine.zero_filled(sides.x)
    n, most = x.shape[1], min(k + OVERSAMPLE, x.shape[1])
    if x.kind == "dense":
        block = engine.take(normal(rng, (n, most), x.dtype))
        for _ in range(1 if sides.totals.rows * n >= LARGE else 4):
            found = engine.orth(engine.gram_times(x, block, None))
            block = found if found.shape[1] else block
    else:
        block = block_krylov(
            lambda v: engine.gram_times(x, v, None),
            n,
            most,
            dtype=x.dtype,
            rng=rng,
            engine=engine,
            block=min(n, max(8, k // 3)),
            tol=1e-4,
            max_steps=30,
        ).vectors
    return engine.times(x, block, None), engine.take(block)


def nndsvd(
    engine: Engine, x: Placed, images: Tall, basis: Tall, k: int, fill: float
) -> tuple[Tall, Tall, bool]:
    """W and H^T from the sketch A ~ B Y^T, zeros filled, and whether every component has a singular
    value; one that has none is zero before it is filled."""
    square, turn = eigh(engine.factor_sums(images, x).square)
    size = np.sqrt(np.maximum(square[::-1][:k], 0.0))
    turn = turn[:, ::-1][:, :k]
    if len(size) < k:  # fewer columns in the sketch than components
        size, turn = (
            np.pad(size, (0, k - len(size))),
            np.pad(turn, ((0, 0), (0, k - turn.shape[1]))),
        )
    kept = size > NOISE * max(float(size.max(initial=0.0)), 1e-300)
    tall = (
        engine.outer(images, turn * np.where(kept, 1 / np.where(kept, size, 1.0), 0.0)),
        engine.outer(basis, turn),
    )
    sums = engine.sign_sums(tall[0], x), engine.sign_sums(tall[1])
    lengths = np.sqrt(sums[0].squares * sums[1].squares)
    sign = np.argmax(lengths, axis=0), np.arange(k)
    reach = np.where(kept, np.sqrt(size * lengths[sign]), 0.0)
    ends = []
    for factor, found in zip(tall, sums):
        length = np.sqrt(found.squares[sign])
        scale = reach / np.where(length > 0, length, 1.0)
        least = NOISE * float((scale * found.most[sign]).max(initial=0.0))
        ends.append(engine.rectified(factor, np.where(sign[0] == 0, scale, -scale), least, fill))
    return ends[0], ends[1], bool(kept.all())


def worthwhile(sides: FactorSides, k: int) -> bool:
    """Whether sweeps on a sketch are much cheaper than on the data, and there is room for them:
    they hold the sketch twice and W five times."""
    rows, n = sides.totals.rows, sides.x.shape[1]
    cheaper = sides.x.kind == "dense" and rows * n > WORTH * (rows + n) * (k + OVERSAMPLE)
    return cheaper and has_room(rows * (2.0 * (k + OVERSAMPLE) + 5.0 * k), sides.x.dtype.itemsize)


def compressed(sides: FactorSides, start: Start, tol: float) -> tuple[Tall, Tall, int]:
    """Sweeps on the sketch until their residual is below ``tol``, and how many."""
    assert start.sketch is not None
    images, basis = start.sketch
    rows = sides.engine.as_rows(images, sides.x)
    small = SquareSides(sides.engine, rows, sides.totals, sides.penalties, SWEEPS, basis=basis)
    state, _ = alternate(small, start.left, start.right, tol=tol, max_iter=STRETCH, leap=True)
    return state.left, state.right, state.sweeps
