"""Forests beside the factor model: what the other cells of a row say of a cell that no linear
combination says.

The forest of a column answers from the scores of the row, where gaps, and the cell itself, are what
the factor model expects of them from the other cells; the final answer lies the share ``w`` of the
way from the factor model's to the forest's. Both are measured where neither has seen the cell: the
factor model at rows left out of its fit (``held_out``), trees at rows that they did not draw. w is
the least-squares one there, from 0 to 1; a forest that gains less than GAIN is dropped.

References: Geurts, Ernst and Wehenkel 2006 (extremely randomised trees); Stekhoven and Buehlmann
2012 (forests for gaps, there in rounds over all columns: here one round suffices, since the factor
model speaks for cells whose neighbours are gaps).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.complete.tables.columns import Part
from eckart.errors import FileError

TREES, MOST_TREES, SCATTER = 16, 64, 0.04
"""Trees that are grown at first, and of a forest at the most: they are doubled while the scatter of
their mean is more than this part of the squared error that is left."""
DRAWN, FEATURES, FEW = 0.8, 0.5, 8
"""The share of the rows that a tree draws, and of the features that it looks at in a
split, FEW at the least. Rows that are nearly alike, as those of one country in other years, need trees that have seen
most of the others."""
LEAVES = 1000
"""Rows over this is the least leaf: it bounds what a forest weighs, about 24 leaves and nodes of 16
bytes for each of them."""
ROWS = 2000
"""Rows that forests are grown from: the cost of a forest stays that of a small table."""
MOST_CHANCE = 0.1
"""Share of what answers of few trees differ by that is no chance at the least."""
MOST_OUTPUTS = 16
"""Levels of a column that has a forest: its leaves hold a number for each."""
GAIN = 0.01
"""Share of the squared error that a forest must take away: below, it is chance and not worth its
size."""
DIGIT = 1e-4
"""To which scores and answers are rounded before trees see them: two splits that divide the rows
alike are compared by their last bits, which differ with the unit of the data and with the
processor; those of rounded numbers do not."""
TRIED_COLUMNS, TRIED_ROWS, TRIED_TREES, TRIED_GAIN = 8, 400, 8, 0.005
"""Before all columns have forests, small ones of a few columns: where their mean gain is less than
this, the low rank suffices."""


@dataclass(frozen=True)
class Forest:
    """Trees one after the other. Of a node: its feature (-1: a leaf), its threshold, and its
    children, the first of which is, for a leaf, its row in ``values``."""

    share: float
    roots: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    children: np.ndarray
    values: np.ndarray

    def answer(self, x: np.ndarray) -> np.ndarray:
        """The mean over trees of the values (rows x outputs) of the leaves in which rows of
        features end."""
        out = np.empty((len(x), self.values.shape[1]))
        step = max(1, 2**20 // max(len(self.roots), 1))
        for first in range(0, len(x), step):
            part = x[first : first + step]
            at, rows = np.tile(self.roots, (len(part), 1)), np.arange(len(part))[:, None]
            while True:
                feature = self.feature[at]
                if (feature < 0).all():
                    break
                right = (part[rows, feature] > self.threshold[at]).astype(np.intp)
                at = np.where(feature < 0, at, self.children[at, right])
            ends = self.children[at, 0]
            total = np.zeros((len(part), out.shape[1]))
            for tree in range(len(self.roots)):
                total += self.values[ends[:, tree]]
            out[first : first + step] = total / len(self.roots)
        return out

    def to_state(self) -> dict[str, np.ndarray]:
        own = {
            name: getattr(self, name)
            for name in ("roots", "feature", "threshold", "children", "values")
        }
        return {"share": np.array([self.share])} | own

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], features: int, outputs: int) -> Forest:
        """Refuses what no fit has written: what leads out of the arrays, or round in a circle."""
        try:
            share, roots, feature, threshold, children, values = (
                arrays[name]
                for name in ("share", "roots", "feature", "threshold", "children", "values")
            )
        except KeyError as error:
            raise FileError(f"a forest of a table has no array {error}") from None
        kinds = [a.dtype for a in (share, roots, feature, threshold, children, values)] == [
            np.float64,
            np.int32,
            np.int32,
            np.float32,
            np.int32,
            np.float32,
        ]
        shapes = (
            share.shape == (1,)
            and roots.ndim == 1
            and feature.shape == threshold.shape == (len(children),)
            and children.shape[1:] == (2,)
        )
        apt = (
            kinds
            and shapes
            and len(roots) > 0
            and values.ndim == 2
            and values.shape[1] == outputs
            and 0 <= share[0] <= 1
        )
        if apt:
            at, leaf = np.arange(len(feature))[:, None], feature < 0
            inner, ends = children[~leaf], children[leaf, 0]
            apt = (
                bool(
                    ((roots >= 0) & (roots < len(feature))).all()
                    and (feature[~leaf] < features).all()
                    and np.isfinite(values).all()
                )
                and not np.isnan(threshold).any()
                and bool(((inner > at[~leaf]) & (inner < len(feature))).all())
                and bool(((ends >= 0) & (ends < len(values))).all())
            )
        if not apt:
            raise FileError("a forest of a table leads nowhere")
        return cls(float(share[0]), roots, feature, threshold, children, values)


def features_of(parts: tuple[Part, ...], part: Part) -> np.ndarray:
    """The scores that the forest of a part looks at: all, but for the cycles of its own date."""
    return np.concatenate(
        [np.arange(p.at.start, p.at.stop) for p in parts if p.name != part.name or p is part]
    )


def inputs(parts: tuple[Part, ...], part: Part, scores: np.ndarray) -> np.ndarray:
    """Features of rows. ``scores`` are seen ones, for gaps and for the part itself those that the
    other cells of the row make the factor model expect."""
    return (scores[:, features_of(parts, part)] / DIGIT).round().astype(np.float32)


def answers(part: Part, y: np.ndarray) -> np.ndarray:
    """What the factor model says of cells at expected scores y: probabilities of levels, or numbers
    in spreads of the column from its middle."""
    return (
        part.probabilities(y)
        if part.discrete
        else (part.numbers(y)[:, None] - part.middle) / part.spread
    )


def truths(part: Part, a: np.ndarray) -> np.ndarray:
    """Codes of seen cells in the form of ``answers``."""
    return (
        np.eye(len(part.levels))[a.astype(np.intp)]
        if part.discrete
        else (part.zero + part.unit * a[:, None] - part.middle) / part.spread
    )


def grown(
    x: np.ndarray,
    truth: np.ndarray,
    base: np.ndarray,
    seed: int,
    most: int,
    weights: np.ndarray | None = None,
) -> tuple[Forest | None, float, np.ndarray]:
    """A forest of at most so many trees on rows of features, the share of the squared error that it
    takes away, and the joined answers, all where trees have not seen the row.

    Trees are added until the scatter of their mean is a small part of the error that is left, or
    until they do not gain.
    """
    from sklearn import config_context
    from sklearn.tree import ExtraTreeRegressor

    rng, n = np.random.default_rng(seed), len(x)
    w = np.ones(n) if weights is None else weights
    truth = (truth / DIGIT).round() * DIGIT
    features = min(x.shape[1], max(FEW, int(FEATURES * x.shape[1])))
    one = ExtraTreeRegressor(min_samples_leaf=max(1, n // LEAVES), max_features=features)
    sums = _Unseen(np.zeros(truth.shape), np.zeros(n), np.zeros(n))
    drawn, trees = max(1, int(DRAWN * n)), []
    with config_context(skip_parameter_validation=True, assume_finite=True):
        while True:
            for _ in range(min(TREES, most)):
                order = rng.permutation(n)
                at, rest = np.sort(order[:drawn]), order[drawn:]
                one.random_state = int(rng.integers(2**31))
                heavy = None if weights is None else w[at]
                one.fit(x[at], truth[at], sample_weight=heavy, check_input=False)
                sums.add(rest, one.tree_.predict(x[rest]).reshape(len(rest), -1))
                trees.append(one.tree_)
            share, gain, scatter, joined = sums.joined(base, truth - base, w, len(trees))
            if gain < GAIN:
                return None, max(gain, 0.0), base
            if scatter < SCATTER or 2 * len(trees) > most:
                return _packed(trees, share), gain, joined


@dataclass
class _Unseen:
    """Sums over the trees that have not seen a row: their answers (rows x outputs), squares of
    these, and how many there are."""

    total: np.ndarray
    squares: np.ndarray
    count: np.ndarray

    def add(self, rows: np.ndarray, answer: np.ndarray) -> None:
        self.total[rows] += answer
        self.squares[rows] += (answer**2).sum(axis=1)
        self.count[rows] += 1

    def joined(
        self, base: np.ndarray, away: np.ndarray, w: np.ndarray, trees: int
    ) -> tuple[float, float, float, np.ndarray]:
        """The least-squares share of a forest, what it gains, the part that scatter of its trees
        has in the error that is left, and joined answers.

        A row is answered by c of T trees here, whose mean is further from the truth than that of
        all: by the variance over trees times 1/c - 1/T. Without that the share would be that of a
        smaller forest.
        """
        seen = self.count > 1  # of the others no variance is known
        c, w = np.where(seen, self.count, 2.0), w * seen
        apart = np.where(seen[:, None], self.total / c[:, None] - base, 0.0)
        square = (self.total**2).sum(axis=1)
        variance = w * np.maximum(self.squares - square / c, 0.0) / (c - 1)
        size = float(w @ (apart**2).sum(axis=1))
        own = max(size - float(variance @ (1 / c - 1 / trees)), MOST_CHANCE * size, 1e-300)
        pull = float(w @ (apart * away).sum(axis=1))
        share = min(max(pull / own, 0.0), 1.0)
        before = max(float(w @ (away**2).sum(axis=1)), 1e-300)
        gain = (2 * share * pull - share**2 * own) / before
        scatter = share**2 * variance.sum() / trees / max((1 - gain) * before, 1e-300)
        return share, gain, float(scatter), base + share * apart


def _packed(trees: list[Any], share: float) -> Forest:
    """The trees of scikit-learn as arrays."""
    roots, feature, threshold, children, values, nodes, leaves = [], [], [], [], [], 0, 0
    for t in trees:
        leaf = t.children_left < 0
        kids = np.column_stack([t.children_left, t.children_right]).astype(np.int32) + nodes
        kids[leaf] = (leaves + np.cumsum(leaf) - 1)[leaf][:, None]
        roots.append(nodes)
        feature.append(np.where(leaf, -1, t.feature))
        threshold.append(np.where(leaf, 0.0, t.threshold))
        children.append(kids)
        values.append(t.value[leaf, :, 0])
        nodes, leaves = nodes + len(leaf), leaves + int(leaf.sum())
    return Forest(
        share,
        np.array(roots, np.int32),
        np.concatenate(feature).astype(np.int32),
        np.concatenate(threshold).astype(np.float32),
        np.vstack(children).astype(np.int32),
        np.vstack(values).astype(np.float32),
    )
