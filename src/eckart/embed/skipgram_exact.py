"""Skip-gram without sampling: the whole loss over all pairs of a small vocabulary, by L-BFGS.

    negative    sum_wv N_wv softplus(-s_wv) + r N_w q_v softplus(s_wv),        s_wv = <zeta_w, z_v>
    + b_v
    softmax     sum_wv N_wv ( log sum_u exp s_wu - s_wv )

over sum N. With vectors as long as the vocabulary the minimum is s_wv = log N_wv / (r N_w q_v) =
PMI - log r, or log N_wv / N_w up to a number for each w.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from eckart.errors import InputError
from eckart.io.models.levels import NOTHING, Memory
from eckart.matrix import Counts
from eckart.optim.lbfgs import minimise
from eckart.terms import Logistic
from eckart.trace import Trace, Watcher, silent

LOGISTIC = Logistic()
LARGEST = 5000
"""Words up to which n x n numbers are held."""


def solve(
    x: Counts,
    noise: np.ndarray,
    *,
    loss: str,
    k: int,
    negatives: float,
    bias: bool,
    max_iter: int,
    tol: float,
    rng: np.random.Generator,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, Trace]:
    """zeta, z, b (None without a bias) and the loss of each step; an interrupt keeps the best
    state."""
    n = x.shape[0]
    if n > LARGEST:
        raise InputError(
            f"the vocabulary must have at most {LARGEST} words without sampling (n x n numbers "
            f"are held), got {n}. Use loss='negative' with solver='stochastic', or max_words=."
        )
    seen = x.to_scipy().toarray().astype(np.float64)
    seen /= max(seen.sum(), 1e-300)
    away = negatives * seen.sum(axis=1)[:, None] * noise
    start = rng.standard_normal(2 * n * k) / np.sqrt(k)
    theta = np.concatenate([start, np.zeros(n)]) if bias else start

    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        u, v = theta[: 2 * n * k].reshape(2, n, k)
        s = u @ v.T
        if bias:
            s += theta[2 * n * k :]
        total, g = _softmax(seen, s) if loss == "softmax" else _negative(seen, away, s)
        parts = [(g @ v).ravel(), (g.T @ u).ravel()]
        return total, np.concatenate([*parts, g.sum(axis=0)] if bias else parts)

    theta, trace = minimise(
        value,
        theta,
        tol=tol,
        max_iter=max_iter,
        quantity="loss of a pair",
        watch=watch,
        memory=memory,
    )
    if not len(trace):
        trace.add(value(theta)[0])
    u, v = theta[: 2 * n * k].reshape(2, n, k)
    return u, v, theta[2 * n * k :] if bias else None, trace


def _negative(seen: np.ndarray, away: np.ndarray, s: np.ndarray) -> tuple[float, np.ndarray]:
    """Logistic losses of pairs that were seen (1) and of noise (0), and their gradient by s."""
    soft = LOGISTIC.value(np.zeros(()), s)
    return float((seen * (soft - s)).sum() + (away * soft).sum()), (seen + away) * LOGISTIC.mean(
        s
    ) - seen


def _softmax(seen: np.ndarray, s: np.ndarray) -> tuple[float, np.ndarray]:
    norm = logsumexp(s, axis=1, keepdims=True)
    return float((seen * (norm - s)).sum()), seen.sum(axis=1, keepdims=True) * np.exp(
        s - norm
    ) - seen
