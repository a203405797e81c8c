"""Where EM starts: a sample of the rows, k-means++ seeds on it, and responsibilities of the sample as a first M step.

Seeding looks at a bounded sample, however many rows there are. Distances are taken in units of each column's standard deviation ("scaled") or after
whitening the sample ("whitened"): restarts take turns, because long thin clusters are found by one and missed by the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.cpu.row_blocks import jobs
from eckart.engines.protocol.mixtures import DIAGONAL, Gaussians
from eckart.explain.mixtures.gaussian_steps import Rules, Scale
from eckart.matrix import Matrix

SAMPLE_ROWS = 2**15
SAMPLE_BYTES = 2**26
LLOYD = 30
LEAN = 0.1
"""Weight of the covariance of all groups in that of one, in average groups."""
WAYS = ("k-means++", "kmeans", "random", "random_from_data")
Way = str


def sample_of(
    x: Matrix, rows: int, weights: np.ndarray | None, rng: np.random.Generator, least: int
) -> tuple[np.ndarray, np.ndarray]:
    """At most a bounded number of rows, drawn without replacement from those with weight, in float64 with NaN at gaps; and their weights."""
    size = min(SAMPLE_ROWS, max(SAMPLE_BYTES // (8 * x.shape[1]), least))
    if weights is None:
        taken = np.sort(rng.choice(rows, size, replace=False)) if rows > size else np.arange(rows)
    else:
        usable = np.flatnonzero(weights)
        taken = np.sort(rng.choice(usable, size, replace=False)) if len(usable) > size else usable
    parts: list[np.ndarray] = []
    for start, count, fetch in jobs(x):
        mine = taken[np.searchsorted(taken, start) : np.searchsorted(taken, start + count)]
        if len(mine):
            parts.append(np.array(fetch({}), np.float64)[mine - start])
    rows_taken, w = np.concatenate(parts), np.ones(len(taken)) if weights is None else weights[taken].astype(np.float64)
    order = np.lexsort(
        rows_taken.T[::-1]
    )  # neither the order of rows nor repeating one instead of weighing it changes a start
    return rows_taken[order], w[order]


def filled_in(sample: np.ndarray, scale: Scale) -> np.ndarray:
    """Missing entries at the mean of their column."""
    return np.where(np.isnan(sample), np.nan_to_num(scale.mean), sample)


def seeds(
    points: np.ndarray, w: np.ndarray, k: int, way: Way, rng: np.random.Generator, lloyd: int = LLOYD
) -> np.ndarray:
    """Responsibilities (rows x k) of sample points already in the units that distances are taken in."""
    if way == "random":
        q = rng.random((len(points), k))
        return q / q.sum(axis=1, keepdims=True)
    if way == "kmeans":
        from sklearn.cluster import KMeans
        from threadpoolctl import threadpool_limits

        seed = int(rng.integers(2**31 - 1))
        with threadpool_limits(1):
            labels = KMeans(k, n_init=1, random_state=seed).fit(points, sample_weight=w).labels_
        return _one_hot(labels, k)
    if way == "random_from_data":
        centres = points[rng.choice(len(points), k, replace=False, p=w / w.sum() if (w > 0).sum() >= k else None)]
    else:
        centres = k_means_plus_plus(points, w, k, rng)
        labels = np.full(len(points), -1)
        for _ in range(lloyd):
            labels, before = _nearest(points, centres), labels
            if (labels == before).all():
                break
            q = _one_hot(labels, k) * w[:, None]
            mass = q.sum(axis=0)
            centres = np.where(mass[:, None] > 0, q.T @ points / np.where(mass > 0, mass, 1.0)[:, None], centres)
    return _one_hot(_nearest(points, centres), k)


def k_means_plus_plus(points: np.ndarray, w: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """k centres, each drawn by weight times squared distance to those before it; the best of a few draws is kept (greedy k-means++).

    >>> x = np.array([[0.0], [0.1], [9.0], [9.1]])
    >>> sorted(k_means_plus_plus(x, np.ones(4), 2, np.random.default_rng(0)).round().ravel().tolist())
    [0.0, 9.0]
    """
    tries = 2 + int(np.log(max(k, 1)))
    square = np.einsum("ij,ij->i", points, points)

    def distances(rows: np.ndarray) -> np.ndarray:
        return np.maximum(square[:, None] - 2 * points @ points[rows].T + square[rows], 0.0)

    def drawn(mass: np.ndarray, count: int) -> np.ndarray:
        ends = np.cumsum(mass)
        return np.minimum(np.searchsorted(ends, rng.random(count) * ends[-1], side="right"), len(mass) - 1)

    chosen = [int(drawn(w, 1)[0])]
    nearest = distances(np.array(chosen))[:, 0]
    for _ in range(1, k):
        mass = nearest * w
        candidates = drawn(mass if mass.sum() > 0 else w, tries)
        after = np.minimum(nearest[:, None], distances(candidates))
        best = int(np.argmin(w @ after))
        chosen.append(int(candidates[best]))
        nearest = after[:, best]
    return points[chosen].copy()


def units(points: np.ndarray, w: np.ndarray, whiten: bool) -> np.ndarray:
    """The sample in standard deviations of its columns, or whitened where it is not too wide for that."""
    centred = points - w @ points / w.sum()
    spread = np.sqrt(w @ centred**2 / w.sum())
    scaled = centred / np.where(spread > 0, spread, 1.0)
    if not whiten or points.shape[1] > 256 or len(points) <= 2 * points.shape[1]:
        return scaled
    values, vectors = np.linalg.eigh(scaled.T @ (w[:, None] * scaled) / w.sum())
    kept = values > 1e-9 * values[-1]
    return scaled @ (vectors[:, kept] / np.sqrt(values[kept]))


def gaussians_from(points: np.ndarray, q: np.ndarray, w: np.ndarray, rules: Rules) -> Gaussians:
    """One M step on the sample. Covariances of small groups lean on that of all groups together, so that a group of one row is no spike."""
    q = q * w[:, None]
    counts = q.sum(axis=0)
    weights = np.maximum(counts, 1e-3 * counts.sum() / len(counts))
    safe = np.where(counts > 0, counts, 1.0)
    means = np.where(counts[:, None] > 0, q.T @ points / safe[:, None], w @ points / w.sum())
    within = np.array([q[:, z] @ (points - means[z]) ** 2 for z in range(len(counts))])
    pooled = within.sum(axis=0) / counts.sum()
    trust = LEAN * counts.sum() / len(counts)
    kind, weights = rules.kind, weights / weights.sum()
    if kind == "factor":
        return _factor_start(points, q, means, weights, within, pooled, trust, rules)
    if kind in DIAGONAL:
        spread: Any = (within + trust * pooled) / (counts + trust)[:, None]
        spread = {"unit": np.empty(0), "spherical": spread.mean(axis=1), "diag": spread}[kind]
    else:
        stack = np.array([(points - m).T @ (q[:, z, None] * (points - m)) for z, m in enumerate(means)])
        together = stack.sum(axis=0) / counts.sum()
        spread = together if kind == "tied" else (stack + trust * together) / (counts + trust)[:, None, None]
    return rules.admit(Gaussians(kind, weights, means, spread))


def _factor_start(
    points: np.ndarray, q: np.ndarray, means: np.ndarray, weights: np.ndarray,
    within: np.ndarray, pooled: np.ndarray, trust: float, rules: Rules,
) -> Gaussians:  # fmt: skip
    """Leading directions of each group (of at most 512 of its rows), and what they leave."""
    k, n, r = q.shape[1], points.shape[1], rules.factors
    spread = (within + trust * pooled) / (q.sum(axis=0) + trust)[:, None]
    loadings = np.zeros((k, n, r))
    for z in range(k):
        rows = np.argsort(-q[:, z], kind="stable")[:512]
        mass = q[rows, z] if (q[rows, z] > 0).sum() > r else np.ones(len(rows))
        part = (points[rows] - means[z]) * np.sqrt(mass / mass.sum())[:, None]
        _, s, vt = np.linalg.svd(part, full_matrices=False)
        loadings[z, :, : min(r, len(s))] = (vt[:r] * np.sqrt(0.9) * s[:r, None]).T
        taken = (loadings[z] ** 2).sum(axis=1)
        spread[z] = np.maximum(spread[z] - taken, 0.1 * spread[z])
    return rules.admit(Gaussians("factor", weights, means, spread, loadings, rules.origin))


def _nearest(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return np.argmin(np.einsum("ij,ij->i", centres, centres) - 2 * points @ centres.T, axis=1)


def _one_hot(labels: np.ndarray, k: int) -> np.ndarray:
    out = np.zeros((len(labels), k))
    out[np.arange(len(labels)), labels] = 1.0
    return out
