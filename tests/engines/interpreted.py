"""Every kernel of the engine in PyTorch under Triton's interpreter, on a pretended card, against
the same primitive without kernels; prints what differs. Run by ``tests/test_cuda_kernels.py`` in a
process of its own, because Triton decides at its import whether it interprets."""

from __future__ import annotations

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

from collections.abc import Callable
from typing import Any

import numpy as np
from pretended import PretendedCard
from scipy import sparse

from eckart.engines.arrays import torch as arrays
from eckart.engines.cuda import (
    dense,
    nonnegative,
    normal_equations,
    ridge,
    topics,
    triangles,
    words,
)
from eckart.engines.cuda import entries as sampled
from eckart.engines.cuda import halves as paired
from eckart.engines.cuda import triangles as known
from eckart.engines.cuda.arrays import on_host
from eckart.engines.cuda.engine import TorchEngine
from eckart.engines.cuda.kernels import divergence, language
from eckart.engines.protocol import KlRule, RidgeRule
from eckart.engines.protocol.mixtures import Gaussians
from eckart.engines.protocol.words import Pieces, WindowRule
from eckart.matrix import Counts, Dense, Observed

ROWS, COLUMNS, K = 7, 9, 5
rng = np.random.default_rng(0)
a = rng.poisson(0.6, (ROWS, COLUMNS)).astype(np.float32)
a[2] = 0  # a row without entries
csr = sparse.csr_matrix(a)
U, V = (rng.standard_normal((n, K)).astype(np.float32) for n in (ROWS, COLUMNS))
WIDE = rng.standard_normal((COLUMNS, 150)).astype(np.float32)
GRAM = V.T.astype(np.float64) @ V
PHI, PRIOR = np.abs(V) / np.abs(V).sum(0), np.full(K, 0.1)
X = rng.standard_normal((ROWS, 4))


def counts(e: Any) -> Any:
    return e.put(Counts(csr.indptr, csr.indices, csr.data, COLUMNS))


def seen(e: Any, weights: Any = None) -> Any:
    return e.put(Observed(csr.indptr, csr.indices, csr.data, COLUMNS), None, weights)


def kl(place: Callable[[Any], Any], rule: KlRule, long: int) -> Callable[[Any], Any]:
    def do(e: Any) -> Any:
        divergence.PIECE = long
        return e.kl_rows(place(e), np.abs(V), np.abs(U), rule, np.abs(V).sum(0), steps=3)

    return do


def mixture(kind: str) -> Callable[[Any], Any]:
    def do(e: Any) -> Any:
        spread = np.full((3, 4), 0.7) if kind == "diag" else np.stack([0.7 * np.eye(4)] * 3)
        s = e.gaussian_statistics(
            e.put(Dense(X), np.abs(X[:, 0])),
            Gaussians(kind, np.array([0.3, 0.5, 0.2]), X[:3] + 0.1, spread),
        )
        return [s.mean, s.scatter, s.bound, s.counts]

    return do


# no word twice in a window
IDS = np.concatenate([rng.permutation(60), rng.permutation(60)[:30]]).astype(np.int32)
TEXT = Pieces.of(
    IDS, np.array([0, 30, 31, 70, 90]), np.linspace(0.6, 1, 60), rng.random(60) + 0.1, 25
)


def skip_gram(
    together: bool, bias: int, part: tuple[int, int] = (0, len(TEXT))
) -> Callable[[Any], Any]:
    """Programs follow one another here, so that shared tables are those of one thread."""

    def do(e: Any) -> Any:
        first = (np.cos(np.arange(2 * 60 * 7.0)) * 0.3).reshape(2, 60, 7).astype(np.float32)
        if bias >= 0:
            first[0, :, bias] = 1.0
        x, y = (e.window_table(side) for side in first)
        rule = WindowRule(3, 5, 0.8, 7, bias)
        told = e.pair_step(
            TEXT, x, y, part, rule, rates=(0.1, 0.02), seed=2**62 + 7, together=together
        )
        return [e.get(x)[:60, :7], e.get(y)[:60, :7], np.array(told)]

    return do


ROWS_WIDE = (rng.standard_normal((50, 520)) * np.exp(rng.standard_normal(520) * 4) + 7).astype(
    np.float32
)
"""More columns than it takes to split numbers into halves, in units that are far apart."""
UNITS = ROWS_WIDE.std(0).astype(np.float64)


def wide_moments(weights: Any) -> Callable[[Any], Any]:
    def do(e: Any) -> Any:
        m = e.moments(e.put(Dense(ROWS_WIDE), weights), np.cos(np.arange(520.0)))
        return [m.mean / UNITS, m.scatter / UNITS / UNITS[:, None], m.probed / UNITS, m.weight]

    return do


def wide_gram(weights: Any, mean: Any, rough: bool = False) -> Callable[[Any], Any]:
    def do(e: Any) -> Any:
        dense.MANY, v = 0, (rng_of(3).standard_normal((520, 6)) / UNITS[:, None]).astype(np.float32)
        return e.gram_times(e.put(Dense(ROWS_WIDE), weights), v, mean, rough=rough) / UNITS[:, None]

    return do


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def narrow_draws(e: Any) -> Any:
    """Columns enough for two tiles of a square; the columns of a row lie well apart."""
    k, normal_equations.NARROW = 70, ("cuda",) if words.usable(None) else ()
    right = np.sin(np.arange(COLUMNS * k) ** 1.1).reshape(COLUMNS, k)
    found = e.ridge_rows(
        seen(e),
        right,
        RidgeRule(0.3),
        own=2.5,
        base=np.eye(k),
        prior=np.ones((1, k)),
        noise=np.cos(np.arange(ROWS * k)).reshape(ROWS, k),
    )
    normal_equations.NARROW = ("cuda",)
    return found.left


BIASED = RidgeRule(0.3, 1.0, bias=True, bias_l2=0.2)
CASES: dict[str, Callable[[Any], Any]] = {
    "moments of many columns": wide_moments(None),
    "weighted moments of many columns": wide_moments(np.linspace(0, 2, 50)),
    "products with many columns": wide_gram(None, ROWS_WIDE.mean(0, dtype=np.float64)),
    "weighted products with many columns": wide_gram(np.linspace(0, 2, 50), None),
    "rough products with many columns": wide_gram(None, ROWS_WIDE.mean(0, dtype=np.float64), True),
    "column moments": lambda e: e.column_moments(
        e.put(Dense(ROWS_WIDE[:, 100:150]), np.linspace(0, 2, 50))
    ),
    "column moments of counts": lambda e: e.column_moments(counts(e)),
    "times": lambda e: e.times(counts(e), V, None),
    "times_t": lambda e: e.times_t(counts(e), U, None),
    "sampled": lambda e: e.sampled(seen(e), U, V),
    "topic_fold": lambda e: e.topic_fold(counts(e), PHI, PRIOR, np.full(K, 0.2), steps=7, tol=1e-2),
    "topic_sweep": lambda e: e.topic_sweep(counts(e), PHI, PRIOR, np.full(K, 0.2), steps=3),
    "kl": kl(counts, KlRule(0.01, 0.02, True, 1e-3), 128),
    "kl of observed entries": kl(seen, KlRule(0.01, 0.0, False, 0.0), 128),
    "kl of long rows": kl(counts, KlRule(0.01, 0.02, True, 1e-3), 2),
    "kl of long observed rows": kl(seen, KlRule(0.01, 0.0, False, 0.0), 2),
    "skip-gram": skip_gram(True, -1),
    "skip-gram with a bias": skip_gram(True, 6, (1, 4)),
    "skip-gram, repeatable": skip_gram(False, -1),
    "hals_rows": lambda e: e.hals_rows(GRAM, U, np.abs(U), 0.01, sweeps=4),
    "hals_seen": lambda e: e.hals_seen(
        seen(e, np.abs(csr.data) + 0.5), np.abs(V), np.abs(U), l1=0.01, l2=0.02, sweeps=3
    ),
    "hals_seen in float64": lambda e: e.hals_seen(
        seen(e), np.abs(V).astype(np.float64), np.abs(U).astype(np.float64), sweeps=2
    ),
    "non-negative ridge": lambda e: e.ridge_rows(
        seen(e), V, BIASED._replace(nonnegative=True), mean=0.5, start=np.abs(U)
    ),
    "ridge with biases": lambda e: e.ridge_rows(
        seen(e), V, BIASED, mean=0.5, offset=V[:, 0].copy()
    ),
    "biases alone": lambda e: e.bias_rows(seen(e), BIASED, None, mean=0.5),
    "ridge with a base and draws": lambda e: e.ridge_rows(
        seen(e, np.abs(csr.data) + 0.5), V, RidgeRule(0.3), base=np.eye(K), prior=U, noise=0.5 * U
    ),
    "ridge with one weight for all": lambda e: e.ridge_rows(
        seen(e), V, RidgeRule(0.3), own=2.5, other=np.abs(V[:, 0])
    ),
    "draws with one weight for all": lambda e: e.ridge_rows(
        seen(e), V, RidgeRule(0.3), own=2.5, noise=U
    ),
    "draws in float32 from halves": narrow_draws,
    "ridge with a base": lambda e: e.ridge_rows(seen(e), V, RidgeRule(0.3), base=GRAM, prior=U),
    "ridge of many columns": lambda e: e.ridge_rows(seen(e), WIDE, RidgeRule(0.3, 1.0)),
    **{
        f"ridge of many columns in {blocks} blocks": lambda e, k=k: e.ridge_rows(
            seen(e), WIDE[:, :k], BIASED, mean=0.5
        )
        for blocks, k in (("two", 20), ("three", 41), ("four", 60), ("four large", 100))
    },
    "conjugate gradients": lambda e: e.ridge_rows(
        seen(e), V, RidgeRule(0.3, alpha=2.0, shift=1.0), base=GRAM, start=U, cg_steps=3
    ),
    "mixture, full": mixture("full"),
    "mixture, diagonal": mixture("diag"),
}


def flat(value: Any) -> list[np.ndarray]:
    if hasattr(value, "tensor"):
        return [on_host(value)]
    if isinstance(value, (tuple, list)):
        return [part for each in value for part in flat(each)]
    return [] if value is None else [np.asarray(value, np.float64)]


def answers(do: Callable[[Any], Any], kernels: bool) -> list[np.ndarray]:
    for module in (
        arrays,
        dense,
        known,
        nonnegative,
        paired,
        ridge,
        sampled,
        topics,
        triangles,
        words,
    ):
        module.usable = lambda tensor: kernels  # type: ignore[attr-defined]
    with PretendedCard():
        return flat(do(TorchEngine(1, "cuda")))


if __name__ == "__main__":
    assert language.PRESENT
    assert language.INTERPRETED
    for name, do in CASES.items():
        if len(sys.argv) > 1 and sys.argv[1] not in name:
            continue
        ours, theirs = answers(do, True), answers(do, False)
        apart = max(
            float(np.abs(p - q).max(initial=0) / max(1e-30, np.abs(q).max(initial=0)))
            for p, q in zip(ours, theirs, strict=True)
        )
        # a hundred roundings of float32; many columns of few entries are ill-conditioned
        print(
            f"{name}: {apart:.1e} "
            f"{'same' if apart < (1e-3 if 'rough' in name else 1e-4 if 'many' in name else 2e-5) else 'DIFFERENT'}",
            flush=True,
        )
