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
TRIED_COLUMNS, TRIED_ROWS, TRIED_TREES, TRIED_GAIN = 8, 400, 8, 0.02
"""Before all columns have forests, small ones of a few columns: where the mean gain, were their
trees many, is less than this share of the squared error, the low rank suffices. Errors themselves
would fall by half of it, and forests cost several times as much as all else."""
FEW_ROWS = 200
"""Rows below which all columns have forests at once: a trial says little there and costs as much."""


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
        [
            np.arange(p.at.start, p.at.stop)
            for p in parts
            if p.name != part.name or p.first == part.first
        ]
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
    weights: np.ndarray | None = None,
) -> tuple[Forest | None, np.ndarray]:
    """A forest on rows of features, where it gains, and the joined answers, where trees have not
    seen the row.

    Trees are added until the scatter of their mean is a small part of the error that is left.
    """
    growth, trees = _Growth(x, truth, base, seed, weights), TREES
    while True:
        growth.grow(trees - len(growth.trees))
        share, pull, own, scatter = growth.measured(trees)
        gain = 2 * share * pull - share**2 * own
        if gain < GAIN:
            return None, base
        if share**2 * scatter / trees < SCATTER * (1 - gain) or 2 * trees > MOST_TREES:
            return _packed(growth.trees, share), base + share * growth.apart()[0]
        trees *= 2


def promised_gain(
    x: np.ndarray, truth: np.ndarray, base: np.ndarray, seed: int, weights: np.ndarray | None
) -> float:
    """Share of the squared error that a forest of MOST_TREES would take away, by a few trees, less
    what chance alone takes in the mean: half of pull's variance over the squared distance, since
    no share is below 0."""
    growth = _Growth(x, truth, base, seed, weights)
    growth.grow(TRIED_TREES)
    share, pull, own, _ = growth.measured(MOST_TREES)
    apart, seen, _ = growth.apart()
    w, away = seen * (1.0 if weights is None else weights), growth.truth - base
    before = max(float(w @ (away**2).sum(axis=1)), 1e-300)
    chance = float((w**2) @ (apart * away).sum(axis=1) ** 2) / before**2 / own
    return 2 * share * pull - share**2 * own - chance / 2


class _Growth:
    """Trees, each on some of the rows, and what they say of the others."""

    def __init__(
        self,
        x: np.ndarray,
        truth: np.ndarray,
        base: np.ndarray,
        seed: int,
        weights: np.ndarray | None,
    ):
        self.x, self.base, self.weights = x, base, weights
        self.truth = (truth / DIGIT).round() * DIGIT
        self.rng, self.trees = np.random.default_rng(seed), list[Any]()
        # of the trees that have not seen a row: their answers, squares of these, how many they are
        self.total, self.squares = np.zeros(truth.shape), np.zeros(len(x))
        self.count = np.zeros(len(x))

    def grow(self, trees: int) -> None:
        from sklearn import config_context
        from sklearn.tree import ExtraTreeRegressor

        x, n = self.x, len(self.x)
        features, drawn = x.shape[1], max(1, int(DRAWN * n))
        one = ExtraTreeRegressor(
            min_samples_leaf=max(1, n // LEAVES),
            max_features=min(features, max(FEW, int(FEATURES * features))),
        )
        with config_context(skip_parameter_validation=True, assume_finite=True):
            for _ in range(trees):
                order = self.rng.permutation(n)
                at, rest = np.sort(order[:drawn]), order[drawn:]
                one.random_state = int(self.rng.integers(2**31))
                heavy = None if self.weights is None else self.weights[at]
                one.fit(x[at], self.truth[at], sample_weight=heavy, check_input=False)
                answer = one.tree_.predict(x[rest]).reshape(len(rest), -1)
                self.total[rest] += answer
                self.squares[rest] += (answer**2).sum(axis=1)
                self.count[rest] += 1
                self.trees.append(one.tree_)

    def apart(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How far their answers are from the factor model's; which rows have any, by two trees at
        least; and the variance over trees there."""
        seen = self.count > 1
        c = np.where(seen, self.count, 2.0)
        apart = np.where(seen[:, None], self.total / c[:, None] - self.base, 0.0)
        variance = np.maximum(self.squares - (self.total**2).sum(axis=1) / c, 0.0) / (c - 1)
        return apart, seen, variance

    def measured(self, trees: int) -> tuple[float, float, float, float]:
        """The least-squares share of a forest of so many trees; how far it pulls toward the truth,
        its squared distance from the factor model, and the variance over trees, as parts of the
        squared error that there is.

        A row is answered by c of T trees here, whose mean is further from the truth than that of
        all: by the variance over trees times 1/c - 1/T. Without that the share would be that of a
        smaller forest.
        """
        apart, seen, variance = self.apart()
        w = seen * (np.ones(len(seen)) if self.weights is None else self.weights)
        away = self.truth - self.base
        before = max(float(w @ (away**2).sum(axis=1)), 1e-300)
        size = float(w @ (apart**2).sum(axis=1)) / before
        chance = w * variance @ (1 / np.where(seen, self.count, 2.0) - 1 / trees) / before
        own = max(size - float(chance), MOST_CHANCE * size, 1e-300)
        pull = float(w @ (apart * away).sum(axis=1)) / before
        return min(max(pull / own, 0.0), 1.0), pull, own, float(w @ variance) / before


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
