"""GloVe by weighted alternating least squares: it is completion of the matrix log N, whose unseen
entries are unknown.

With the contexts fixed, every word is a small weighted ridge problem with its bias,

    min over (zeta_w, b_w) of 1/2 sum_v f(N_wv) (log N_wv - c_v - b_w - <zeta_w, z_v>)^2 + 1/2 l2
    sqrt(n_w) ||zeta_w||^2,

n_w being the pairs of the word, solved exactly by ``engine.ridge_rows``; then the same for the
contexts. So the objective falls at every half sweep, and there is no learning rate. The small ridge
makes the solution unique and keeps rare words, which have fewer pairs than dimensions, from fitting
noise.

The start spans a randomized range of D^-1/2 R D^-1/2, R being log N less plain biases and D the
numbers of pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.pairs import GloveProblem
from eckart.engines.protocol import Placed, RidgeRule, Tall
from eckart.rng import normal

BIAS_ROUNDS = 2
"""Of biases alone before there are factors: only a start, the sweeps fit them again."""
NAME, METHOD = "ALS sweeps", "alternating least squares"
PATIENCE = 1
"""Sweeps without a gain after which it stops: each one lowers the objective."""


class AlsState(NamedTuple):
    """Factors and biases after whole sweeps, the loss after each, and the objective after each half
    sweep."""

    left: Tall
    right: Tall
    bias: Tall
    context_bias: Tall
    losses: list[float]
    objective: list[float]


def start(p: GloveProblem, k: int, engine: Any, rng: np.random.Generator) -> AlsState:
    """Plain biases, and contexts that span where the residual is large."""
    n, dtype = p.x.shape[1], p.x.dtype
    bias = context_bias = engine.take(np.zeros(n, dtype))
    for _ in range(BIAS_ROUNDS):
        bias = engine.bias_rows(p.x, p.rule, context_bias)
        context_bias = engine.bias_rows(p.x.T, p.rule, bias)
    rows, columns = (
        (np.maximum(x.counts, 1.0) ** -0.5).astype(dtype)[:, None] for x in (p.x, p.x.T)
    )

    def times(x: Placed, v: np.ndarray, own: Tall, other: Tall) -> np.ndarray:
        return engine.get(engine.offset_times(x, engine.take(v), 0.0, own, other))[:, : v.shape[1]]

    def orth(v: np.ndarray) -> np.ndarray:
        return engine.get(engine.orth(engine.take(v))).astype(dtype)

    block = normal(rng, (n, min(k, n)), dtype)
    found = orth(rows * times(p.x, columns * block, bias, context_bias))
    block = columns * orth(columns * times(p.x.T, rows * found, context_bias, bias))
    right = normal(rng, (n, k), dtype) * dtype.type(0.1 / np.sqrt(k))
    got = block.shape[1]
    size = float(np.sqrt(np.mean(np.square(block, dtype=np.float64)))) if got else 0.0
    if size > 0:
        right[:, :got] = block * dtype.type(0.3 / size)
    return AlsState(
        engine.take(np.zeros((n, k), dtype)), engine.take(right), bias, context_bias, [], []
    )


def stepper(
    p: GloveProblem, s: AlsState, engine: Any, rate: float
) -> Callable[[AlsState], AlsState]:
    """The step of a sweep; it has no rate."""
    return lambda state: sweep(p, state, engine)


def sweep(p: GloveProblem, s: AlsState, engine: Any) -> AlsState:
    """All words given the contexts, then all contexts given the words."""
    x, xt, rule = p.x, p.x.T, p.rule
    rows = engine.ridge_rows(x, s.right, rule, offset=s.context_bias)
    first = rows.value + penalty(engine, xt, rule, s.right, s.context_bias)
    own = penalty(engine, x, rule, rows.left, rows.bias)
    other = engine.ridge_rows(xt, rows.left, rule, offset=rows.bias)
    data = other.value - penalty(engine, xt, rule, other.left, other.bias)
    objective = [*s.objective, first, other.value + own]
    return AlsState(
        rows.left, other.left, rows.bias, other.bias, [*s.losses, p.loss(data)], objective
    )


def penalty(engine: Any, x: Placed, rule: RidgeRule, u: Tall, b: Tall) -> float:
    """1/2 sum_i l_i ||u_i||^2 + m_i b_i^2."""
    ridge, bias_ridge = rule.ridges(x.counts)
    bias = engine.get(b).astype(np.float64)
    return 0.5 * float(np.trace(engine.inner(u, u, engine.take(ridge))) + bias_ridge @ bias**2)


def parts(s: AlsState, engine: Any) -> tuple[np.ndarray, ...]:
    """Vectors, contexts and their biases."""
    return tuple(np.ascontiguousarray(engine.get(part)) for part in s[:4])


def pack(s: AlsState, engine: Any) -> dict[str, np.ndarray]:
    """For a checkpoint."""
    arrays = dict(zip(s._fields, parts(s, engine)))
    return arrays | {"losses": np.array(s.losses), "objective": np.array(s.objective)}


def unpack(a: dict[str, np.ndarray], engine: Any) -> AlsState:
    left, right, bias, context_bias = (engine.take(a[name]) for name in AlsState._fields[:4])
    return AlsState(left, right, bias, context_bias, a["losses"].tolist(), a["objective"].tolist())
