"""Non-negative factorization of rows that come in blocks and are not kept.

For a block A_b the codes W_b are solved given H; what is kept of the block are statistics that add up:

    least squares   S <- g S + W_b^T D W_b,  C <- g C + A_b^T D W_b,   then H by coordinate descent on 1/2 tr H^T S H - tr C H
    KL              C <- g C + H o (R_b^T D W_b), R_b = A_b / (W_b H),  S <- g S + sum of rows of D W_b,   then H = C / S

The discount g = 1 - 1/t lets what was computed with an old H fade (block s weighs s / t after t blocks).

Reference: Mairal, Bach, Ponce and Sapiro, "Online learning for matrix factorization and sparse coding" (2010).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from eckart.engines.protocol import Engine, KlRule
from eckart.explain.parts.options import Options
from eckart.explain.parts.solve import encode
from eckart.matrix import Counts, Dense, Matrix, Observed

ROUNDS, SWEEPS = 3, 20


@dataclass(frozen=True, eq=False)
class Stream:
    """H^T (columns x k), the statistics of the blocks so far, how many blocks, and the weight of their rows, faded alike."""

    right: np.ndarray
    square: np.ndarray
    cross: np.ndarray
    blocks: int = 0
    weight: float = 0.0

    @classmethod
    def begin(cls, right: np.ndarray, loss: str) -> Stream:
        n, k = right.shape
        return cls(right, np.zeros(k if loss == "kl" else (k, k)), np.zeros((n, k)))


def take(
    stream: Stream, block: Matrix, options: Options, engine: Engine, weights: np.ndarray | None = None
) -> tuple[Stream, np.ndarray]:
    """The stream after one more block, and the block's W."""
    right, t = stream.right, stream.blocks + 1
    fade = 1 - 1 / t
    left = encode(block, right, options, engine)
    square, cross = stream.square, stream.cross
    for _ in range(ROUNDS):
        s, c = _statistics(block, left, right, options, engine, weights)
        square, cross = fade * stream.square + s, fade * stream.cross + c
        right = _columns(square, cross, right, options, engine)
        left = encode(block, right, options, engine)
    weight = float(left.shape[0] if weights is None else weights.sum())
    return replace(
        stream, right=right, square=square, cross=cross, blocks=t, weight=fade * stream.weight + weight
    ), left


def _statistics(
    block: Matrix, left: np.ndarray, right: np.ndarray, options: Options, engine: Engine, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    heavy = left if weights is None else left * weights[:, None].astype(left.dtype)
    whole = Counts(block.indptr, block.indices, block.data, block.n_columns) if isinstance(block, Observed) else block
    if options.loss != "kl":
        return left.T.astype(np.float64) @ heavy, engine.times_t(whole, heavy, None).astype(np.float64)
    if isinstance(block, Dense):
        s = np.maximum(left @ right.T, np.finfo(left.dtype).tiny)
        ratio: Dense | Counts = Dense(np.where(block.array > 0, block.array / s, 0).astype(left.dtype))
    else:
        s = engine.sampled(block, left, right)  # type: ignore[arg-type]
        ratio = Counts(block.indptr, block.indices, block.data / np.maximum(s, np.finfo(s.dtype).tiny), block.n_columns)
    return heavy.sum(axis=0, dtype=np.float64), right * engine.times_t(ratio, heavy, None).astype(np.float64)


def _columns(square: np.ndarray, cross: np.ndarray, right: np.ndarray, options: Options, engine: Engine) -> np.ndarray:
    m1, m2 = options.penalties.of_right()
    if options.loss == "kl":
        rule = KlRule(m1, m2)
        down = np.maximum(square + rule.l1, np.finfo(np.float64).tiny)
        if rule.l2:
            return (2 * cross / (down + np.sqrt(down**2 + 4 * rule.l2 * cross))).astype(right.dtype)
        return (cross / down).astype(right.dtype)
    gram = square + m2 * np.eye(len(square))
    return engine.hals_rows(gram, cross - m1, right, sweeps=SWEEPS).factor
