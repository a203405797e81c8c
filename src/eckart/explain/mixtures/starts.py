"""Where EM starts: a sample of the rows, k-means++ seeds on it, and responsibilities of the sample
as a first M step.

Seeding looks at a bounded sample, however many rows there are. Distances are taken in units of each
column's standard deviation ("scaled") or after whitening the sample ("whitened"): restarts take
turns, because long thin clusters are found by one and missed by the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.decompositions import eigh, svd
from eckart.engines.protocol import Engine, Placed
from eckart.engines.protocol.mixtures import Gaussians
from eckart.explain.mixtures.gaussian_steps import Rules, Scale
from eckart.matrix import Dense

SAMPLE_ROWS, SAMPLE_BYTES = 2**15, 2**26
"""Rows and bytes of a sample at the most: seeding looks for groups of some hundredths of the rows,
and these are enough to see them."""
LLOYD = 30
"""Steps of k-means at the most: EM goes on from there, so that the last of them would be wasted."""
LEAN = 0.1
"""Weight of the covariance of all groups in that of one, in average groups."""
WAYS = ("k-means++", "kmeans", "random", "random_from_data")
Way = str


@dataclass(frozen=True, eq=False)
class Sample:
    """At most a bounded number of rows, on the host in float64, with their weights; ``placed`` is
    the same in the engine, gaps at the mean of the column."""

    rows: np.ndarray
    w: np.ndarray
    filled: np.ndarray
    placed: Placed
    engine: Engine

    @classmethod
    def of(
        cls,
        x: Placed,
        scale: Scale,
        weights: np.ndarray | None,
        rng: np.random.Generator,
        least: int,
        engine: Engine,
    ) -> Sample:
        """Rows drawn without replacement from those with weight, NaN at gaps."""
        size = min(SAMPLE_ROWS, max(SAMPLE_BYTES // (8 * x.shape[1]), least))
        if weights is None:
            taken = (
                np.sort(rng.choice(scale.rows, size, replace=False))
                if scale.rows > size
                else np.arange(scale.rows)
            )
        else:
            usable = np.flatnonzero(weights)
            taken = (
                np.sort(rng.choice(usable, size, replace=False)) if len(usable) > size else usable
            )
        rows = engine.rows_at(x, taken).astype(np.float64, copy=False)
        # neither the order of rows nor repeating one instead of weighing it changes a start
        order = by_value(rows)
        rows, w = (
            rows[order],
            np.ones(len(taken)) if weights is None else weights[taken[order]].astype(np.float64),
        )
        filled = np.where(np.isnan(rows), np.nan_to_num(scale.mean), rows) if scale.gaps else rows
        return cls(rows, w, filled, engine.put(Dense(filled), w), engine)

    def __len__(self) -> int:
        return len(self.rows)

    def shares(self, k: int, way: Way, rng: np.random.Generator, whiten: bool) -> np.ndarray:
        """Responsibilities of a start, rows x k."""
        return seeds(units(self, whiten), self.w, k, way, rng, self.engine)


def by_value(rows: np.ndarray) -> np.ndarray:
    """The order of rows by their first column, by the next among equals, and so on; NaN last, as
    ``np.lexsort`` of all columns but faster.

    >>> by_value(np.array([[2.0, 1.0], [1.0, 5.0], [1.0, 3.0]])).tolist()
    [2, 1, 0]
    """
    first = rows[:, 0].copy()
    order = np.argsort(first)  # not stable, so equals are looked for
    first = first[order]
    same = (first[1:] == first[:-1]) | (np.isnan(first[1:]) & np.isnan(first[:-1]))
    return np.lexsort(rows.T[::-1]) if same.any() else order


def seeds(
    points: np.ndarray,
    w: np.ndarray,
    k: int,
    way: Way,
    rng: np.random.Generator,
    engine: Engine,
    lloyd: int = LLOYD,
) -> np.ndarray:
    """Responsibilities (rows x k) of sample points already in the units that distances are taken
    in."""
    if way == "random":
        q = rng.random((len(points), k))
        return q / q.sum(axis=1, keepdims=True)
    if way == "kmeans":
        from sklearn.cluster import KMeans
        from threadpoolctl import threadpool_limits

        seed = int(rng.integers(2**31 - 1))
        with threadpool_limits(1, user_api="openmp"):  # its sums depend on the number of threads
            labels = KMeans(k, n_init=1, random_state=seed).fit(points, sample_weight=w).labels_
        return _one_hot(labels, k)
    placed = engine.put(Dense(points), w)
    if way == "random_from_data":
        centres = points[
            rng.choice(len(points), k, replace=False, p=w / w.sum() if (w > 0).sum() >= k else None)
        ]
    else:
        centres = k_means_plus_plus(points, w, k, rng, engine)
        for _ in range(lloyd):
            found, before = engine.group_sums(placed, centres), centres
            mass = found.counts[:, None]
            centres = np.where(mass > 0, found.sums / np.where(mass > 0, mass, 1.0), centres)
            if (centres == before).all():  # no row has changed its group
                break
    return _one_hot(engine.get(engine.nearest(placed, centres)), k)


def k_means_plus_plus(
    points: np.ndarray, w: np.ndarray, k: int, rng: np.random.Generator, engine: Engine
) -> np.ndarray:
    """k centres, each drawn by weight times squared distance to those before it; the best of a few
    draws is kept (greedy k-means++).

    >>> from eckart.engines import engine_named
    >>> x = np.array([[0.0], [0.1], [9.0], [9.1]])
    >>> sorted(k_means_plus_plus(x, np.ones(4), 2, np.random.default_rng(0), engine_named("numpy")).round().ravel().tolist())
    [0.0, 9.0]
    """
    tries, placed = 2 + int(np.log(max(k, 1))), engine.put(Dense(points))

    def drawn(mass: np.ndarray, count: int) -> np.ndarray:
        ends = np.cumsum(mass)
        return np.minimum(
            np.searchsorted(ends, rng.random(count) * ends[-1], side="right"), len(mass) - 1
        )

    chosen = [int(drawn(w, 1)[0])]
    nearest = engine.get(engine.distances(placed, points[chosen]))[:, 0]
    for _ in range(1, k):
        mass = nearest * w
        candidates = drawn(mass if mass.any() else w, tries)
        after = engine.get(engine.distances(placed, points[candidates]))
        np.minimum(nearest[:, None], after, out=after)
        best = int(np.argmin(w @ after))
        chosen.append(int(candidates[best]))
        nearest = after[:, best]
    return points[chosen].copy()


def units(sample: Sample, whiten: bool) -> np.ndarray:
    """The sample in standard deviations of its columns, or whitened where it is not too wide for
    that."""
    engine, points = sample.engine, sample.placed
    rows, n = sample.filled.shape
    whiten = whiten and n <= 256 and rows > 2 * n
    found = engine.share_statistics(points, np.ones((rows, 1)), "tied" if whiten else "diag")
    scatter = found.scatter / found.weight
    spread = np.sqrt(np.maximum(np.diagonal(scatter) if whiten else scatter[0], 0.0))
    scale = 1.0 / np.where(spread > 0, spread, 1.0)
    if not whiten:
        scaled = sample.filled - found.mean[0]
        scaled *= scale
        return scaled
    values, vectors = eigh(scatter * np.outer(scale, scale))
    kept = values > 1e-9 * values[-1]  # directions that the sample does not have, but for rounding
    turned = scale[:, None] * vectors[:, kept] / np.sqrt(values[kept])
    return engine.get(engine.times(sample.placed, turned, found.mean[0]))


def gaussians_from(sample: Sample, q: np.ndarray, rules: Rules) -> Gaussians:
    """One M step on the sample. Covariances of small groups lean on that of all groups together, so
    that a group of one row is no spike."""
    kind = rules.kind
    s = sample.engine.share_statistics(
        sample.placed, q, "full" if kind in ("tied", "full") else "diag"
    )
    counts = s.counts
    weights = np.maximum(counts, 1e-3 * counts.sum() / len(counts))
    weights = weights / weights.sum()
    means = np.where(counts[:, None] > 0, s.mean, (counts @ s.mean) / counts.sum())
    trust = LEAN * counts.sum() / len(counts)
    together = s.scatter.sum(axis=0) / counts.sum()
    leaning = (counts + trust).reshape(-1, *(1 for _ in together.shape))
    spread: Any = (s.scatter + trust * together) / leaning
    if kind == "factor":
        return _factor_start(sample, q * sample.w[:, None], means, weights, spread, rules)
    spread = {"unit": np.empty(0), "spherical": spread.mean(axis=1), "tied": together}.get(
        kind, spread
    )
    return rules.admit(Gaussians(kind, weights, means, spread))


def _factor_start(
    sample: Sample,
    q: np.ndarray,
    means: np.ndarray,
    weights: np.ndarray,
    spread: np.ndarray,
    rules: Rules,
) -> Gaussians:
    """Leading directions of each group (of at most 512 of its rows), and what they leave."""
    points = sample.filled
    k, n, r = q.shape[1], points.shape[1], rules.factors
    loadings = np.zeros((k, n, r))
    for z in range(k):
        rows = np.argsort(-q[:, z], kind="stable")[:512]
        mass = q[rows, z] if (q[rows, z] > 0).sum() > r else np.ones(len(rows))
        part = (points[rows] - means[z]) * np.sqrt(mass / mass.sum())[:, None]
        _, s, vt = svd(part, full_matrices=False)
        loadings[z, :, : min(r, len(s))] = (vt[:r] * np.sqrt(0.9) * s[:r, None]).T
        taken = (loadings[z] ** 2).sum(axis=1)
        spread[z] = np.maximum(spread[z] - taken, 0.1 * spread[z])
    return rules.admit(Gaussians("factor", weights, means, spread, loadings, rules.origin))


def _one_hot(labels: np.ndarray, k: int) -> np.ndarray:
    out = np.zeros((len(labels), k))
    out[np.arange(len(labels)), labels] = 1.0
    return out
