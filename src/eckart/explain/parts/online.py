"""Non-negative factorization of rows that come in blocks and are not kept.

For a block A_b the codes W_b are solved given H; what is kept of the block are statistics that add
up:

    least squares   S <- g S + W_b^T D W_b,  C <- g C + A_b^T D W_b,   then H by coordinate descent
    on 1/2 tr H^T S H - tr C H
    KL              C <- g C + H o (R_b^T D W_b), R_b = A_b / (W_b H),  S <- g S + sum of rows of D
    W_b,   then H = C / S
    beta            C <- g C + H^(1/p) o num,  S <- g S + den of a step of the columns
    (``engines.protocol.divergences``),   then H = (C / S)^p

The discount g lets what was computed with an old H fade: 1 - 1/t where every block is new (block s
weighs s / t after t blocks), a constant where the same blocks come again and again
(``mini_batch``).

Reference: Mairal, Bach, Ponce and Sapiro, "Online learning for matrix factorization and sparse
coding" (2010).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from eckart.engines.protocol import BetaRule, Tall
from eckart.explain.parts.options import NmfOptions
from eckart.explain.parts.sides import FactorSides, Half, Penalties
from eckart.explain.parts.solve import encode

ROUNDS, SWEEPS = 3, 20
"""Times that H and the codes of a block follow each other; coordinate sweeps of H in each."""


@dataclass(frozen=True, eq=False)
class Stream:
    """H^T (columns x k), the statistics of the blocks so far, how many blocks, and the weight of
    their rows, faded alike."""

    right: np.ndarray
    square: np.ndarray
    cross: np.ndarray
    blocks: int = 0
    weight: float = 0.0

    @classmethod
    def begin(cls, right: np.ndarray, loss: str) -> Stream:
        n, k = right.shape
        return cls(
            right, np.zeros({"kl": (k,), "beta": (n, k)}.get(loss, (k, k))), np.zeros((n, k))
        )


def known(sides: FactorSides, left: np.ndarray, right: np.ndarray, scale: float) -> Stream:
    """A stream that begins at H and knows its first rows, those of ``sides``, by their W, as if
    they were ``scale`` times as many."""
    engine, dtype = sides.engine, sides.x.dtype
    square, cross = _statistics(sides, engine.take(left, dtype), engine.take(right, dtype))
    return Stream(right, scale * square, scale * cross, weight=scale * sides.totals.weight)


def take(
    stream: Stream, sides: FactorSides, options: NmfOptions, fade: float, start: Tall | None = None
) -> tuple[Stream, Tall]:
    """The stream after one more block, and the block's W. ``sides`` are those of the block without
    penalties on H; ``fade`` is g.

    ``start``: the W that these rows had before; then short steps from there and one of H do, for
    the rows will come again.
    """
    engine, right, t = (
        sides.engine,
        sides.engine.take(stream.right, sides.x.dtype),
        stream.blocks + 1,
    )
    square, cross = stream.square, stream.cross
    left = encode(sides.x, right, options, engine, start)
    for _ in range(ROUNDS if start is None else 1):
        s, c = _statistics(sides, left, right)
        square, cross = fade * stream.square + s, fade * stream.cross + c
        right = _columns(sides, square, cross, right, options.penalties)
        if start is None:
            left = encode(sides.x, right, options, engine)
    weight = fade * stream.weight + sides.totals.weight
    kept = np.ascontiguousarray(engine.get(right))
    return replace(stream, right=kept, square=square, cross=cross, blocks=t, weight=weight), left


def _statistics(sides: FactorSides, left: Tall, right: Tall) -> tuple[np.ndarray, np.ndarray]:
    """W^T D W and A^T D W; under a divergence what a step without penalties divides by, and what it
    divides."""
    if sides.loss == "beta":
        sums = sides.engine.beta_sums(sides.x, left, right, sides.beta)
        return sums.down, sides.engine.get(right).astype(np.float64) ** (
            1 / BetaRule(sides.beta).power
        ) * sums.up
    if sides.loss != "kl":
        found = sides.rows(left, right, still=True).sums
        assert found is not None
        return found.square, found.cross.astype(np.float64)
    mass = sides.engine.get(sides.engine.factor_mass(left, sides.x))
    step = replace(sides, sweeps=1).columns(Half(left, 0.0), right)
    return mass, sides.engine.get(step.factor).astype(np.float64) * mass


def _columns(
    sides: FactorSides, square: np.ndarray, cross: np.ndarray, right: Tall, p: Penalties
) -> Tall:
    if sides.loss == "frobenius":
        gram = square + p.m2 * np.eye(len(square))
        return sides.engine.hals_rows(gram, cross, right, p.m1, sweeps=SWEEPS).factor
    down = np.maximum(square + p.m1, np.finfo(np.float64).tiny)
    bend = np.sqrt(down**2 + 4 * p.m2 * cross)  # the positive root of m2 h^2 + down h = cross
    power = BetaRule(sides.beta).power  # 1 for KL
    # what no row has used so far is as it was: zeros would stay zeros for ever
    found = np.where(square > 0, (2 * cross / (down + bend)) ** power, sides.engine.get(right))
    return sides.engine.take(found, right.dtype)
