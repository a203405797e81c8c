"""GloVe by weighted alternating least squares: it is completion of the matrix log N, whose unseen entries are unknown.

With the contexts fixed, every word is a small weighted ridge problem with its bias,

    min over (zeta_w, b_w) of 1/2 sum_v f(N_wv) (log N_wv - c_v - b_w - <zeta_w, z_v>)^2 + 1/2 l2 sqrt(n_w) ||zeta_w||^2,

n_w being the pairs of the word, solved exactly by ``engine.ridge_rows``; then the same for the contexts. So the objective falls at every half sweep, and there
is no learning rate. The small ridge makes the solution unique and keeps rare words, which have fewer pairs than dimensions, from fitting noise.

The start spans a randomized range of D^-1/2 R D^-1/2, R being log N less plain biases and D the numbers of pairs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eckart.certify.glove import GloveProblem
from eckart.certify.stationary import penalty
from eckart.rng import normal

BIAS_ROUNDS = 2


class AlsState(NamedTuple):
    """Factors and biases after whole sweeps, the loss after each, and the objective after each half sweep."""

    left: np.ndarray
    right: np.ndarray
    bias: np.ndarray
    context_bias: np.ndarray
    losses: list[float]
    objective: list[float]

    def pack(self) -> dict[str, np.ndarray]:
        """For a checkpoint."""
        names = ("left", "right", "bias", "context_bias")
        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in names}
        return arrays | {"losses": np.array(self.losses), "objective": np.array(self.objective)}

    @classmethod
    def unpack(cls, a: dict[str, np.ndarray]) -> AlsState:
        losses, objective = a["losses"].tolist(), a["objective"].tolist()
        return cls(a["left"], a["right"], a["bias"], a["context_bias"], losses, objective)


def start(p: GloveProblem, k: int, engine: Any, rng: np.random.Generator) -> AlsState:
    """Plain biases, and contexts that span where the residual is large."""
    n, dtype = p.x.shape[0], p.x.dtype
    bias = context_bias = np.zeros(n, dtype)
    for _ in range(BIAS_ROUNDS):
        bias = engine.bias_rows(p.x, p.rule, context_bias, p.weights)
        context_bias = engine.bias_rows(p.xt, p.rule, bias, p.weights_t)
    rows, columns = ((np.maximum(x.row_counts(), 1.0) ** -0.5).astype(dtype)[:, None] for x in (p.x, p.xt))
    block = normal(rng, (n, min(k, n)), dtype)
    found = rows * engine.offset_times(p.x, columns * block, 0.0, bias, context_bias)[:, : block.shape[1]]
    found = engine.orth(found).astype(dtype)
    block = columns * engine.offset_times(p.xt, rows * found, 0.0, context_bias, bias)[:, : found.shape[1]]
    block = columns * engine.orth(block).astype(dtype)
    right = normal(rng, (n, k), dtype) * dtype.type(0.1 / np.sqrt(k))
    got = block.shape[1]
    size = float(np.sqrt(np.mean(np.square(block, dtype=np.float64)))) if got else 0.0
    if size > 0:
        right[:, :got] = block * dtype.type(0.3 / size)
    return AlsState(np.zeros((n, k), dtype), right, bias, context_bias, [], [])


def sweep(p: GloveProblem, s: AlsState, engine: Any) -> AlsState:
    """All words given the contexts, then all contexts given the words."""
    columns = penalty(p.xt, p.rule, s.right, s.context_bias)
    rows = engine.ridge_rows(p.x, s.right, p.rule, offset=s.context_bias, weights=p.weights)
    first = rows.value + columns
    own = penalty(p.x, p.rule, rows.left, rows.bias)
    other = engine.ridge_rows(p.xt, rows.left, p.rule, offset=rows.bias, weights=p.weights_t)
    data = other.value - penalty(p.xt, p.rule, other.left, other.bias)
    objective = [*s.objective, first, other.value + own]
    return AlsState(rows.left, other.left, rows.bias, other.bias, [*s.losses, p.loss(data)], objective)
