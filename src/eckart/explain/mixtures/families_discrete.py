"""Bernoulli and multinomial components: for answers and for counts.

Probabilities are kept a little away from zero (and one): the fit is the maximum over that range, so
that EM never lowers its bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eckart.engines.protocol.mixtures import Linear
from eckart.errors import InputError

EDGE = 1e-6
"""Least probability of a Bernoulli component, from either side."""
LEAST = 1e-9
"""Least probability of a multinomial component, times the number of columns."""

Parameters = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class CountSums:
    """Named sums over rows, which add up."""

    arrays: Parameters

    def merge(self, other: CountSums) -> CountSums:
        return CountSums({name: a + other.arrays[name] for name, a in self.arrays.items()})


class Bernoulli:
    """Independent entries in [0, 1] with means m_zj: log p = sum_j x log m + (1 - x) log(1 - m). A
    missing entry is left out.

    >>> x = np.array([[1.0, 0.0], [1.0, 1.0]])
    >>> Bernoulli().weighted_fit(x, np.ones((2, 1)))["means"].round(3).tolist()
    [[1.0, 0.5]]
    """

    name = "bernoulli"
    gaps = True
    within = 0.0, 1.0

    def check(self, x: np.ndarray, first_row: int) -> None:
        _refuse(x, (x < 0) | (x > 1), first_row, "numbers from 0 to 1", self.name)

    def linear(self, parameters: Parameters) -> Linear:
        none = np.log1p(-parameters["means"])
        return Linear(np.log(parameters["means"]) - none, none)

    def log_prob(self, x: np.ndarray, parameters: Parameters) -> np.ndarray:
        m = parameters["means"]
        seen = ~np.isnan(x)
        ones = np.where(seen, x, 0.0)
        return ones @ np.log(m).T + (seen - ones) @ np.log1p(-m).T

    def statistics(self, x: np.ndarray, q: np.ndarray) -> CountSums:
        seen = ~np.isnan(x)
        return self.summed(q.T @ np.where(seen, x, 0.0), q.T @ seen)

    def summed(
        self, entries: np.ndarray, seen: np.ndarray, counts: np.ndarray | None = None
    ) -> CountSums:
        return CountSums({"ones": entries, "seen": seen})

    def maximise(self, s: CountSums) -> Parameters:
        seen = s.arrays["seen"]
        share = np.where(seen > 0, s.arrays["ones"] / np.where(seen > 0, seen, 1.0), 0.5)
        return {"means": np.clip(share, EDGE, 1 - EDGE)}

    def weighted_fit(self, x: np.ndarray, q: np.ndarray) -> Parameters:
        return self.maximise(self.statistics(x, q))

    def draw(
        self, parameters: Parameters, labels: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        means = parameters["means"][labels]
        return (rng.random(means.shape) < means).astype(np.float64)

    def n_parameters(self, k: int, n: int) -> int:
        return k * n


class MultinomialComponents:
    """Counts x_j >= 0 of a row drawn from probabilities p_zj: log p = log(sum x)! - sum log x_j! +
    sum_j x_j log p_zj.

    >>> MultinomialComponents().weighted_fit(np.array([[3.0, 1.0]]), np.ones((1, 1)))["probabilities"].round(3).tolist()
    [[0.75, 0.25]]
    """

    name = "multinomial"
    within = 0.0, np.inf

    def check(self, x: np.ndarray, first_row: int) -> None:
        _refuse(x, x < 0, first_row, "counts >= 0", self.name)

    def log_prob(self, x: np.ndarray, parameters: Parameters) -> np.ndarray:
        from scipy.special import gammaln

        total = gammaln(x.sum(axis=1) + 1) - gammaln(x + 1).sum(axis=1)
        return total[:, None] + x @ np.log(parameters["probabilities"]).T

    def linear(self, parameters: Parameters) -> Linear:
        return Linear(np.log(parameters["probabilities"]), counted=True)

    def statistics(self, x: np.ndarray, q: np.ndarray) -> CountSums:
        return self.summed(q.T @ x, None, q.sum(axis=0))

    def summed(self, entries: np.ndarray, seen: np.ndarray | None, counts: np.ndarray) -> CountSums:
        return CountSums(
            {
                "counts": entries,
                "tokens": np.array([entries.sum()]),
                "rows": np.array([counts.sum()]),
            }
        )

    def maximise(self, s: CountSums) -> Parameters:
        counts = s.arrays["counts"]
        length = s.arrays["tokens"] / np.maximum(s.arrays["rows"], 1e-300)
        return {
            "probabilities": np.array([probabilities(c, LEAST / len(c)) for c in counts]),
            "length": length,
        }

    def weighted_fit(self, x: np.ndarray, q: np.ndarray) -> Parameters:
        return self.maximise(self.statistics(x, q))

    def draw(
        self, parameters: Parameters, labels: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Rows of Poisson length around the mean length of the data."""
        sizes = rng.poisson(float(parameters["length"][0]), len(labels))
        p = parameters["probabilities"][labels]
        return np.array([rng.multinomial(s, v / v.sum()) for s, v in zip(sizes, p)], np.float64)

    def n_parameters(self, k: int, n: int) -> int:
        return k * (n - 1)


def probabilities(counts: np.ndarray, least: float) -> np.ndarray:
    """argmax sum c_j log p_j over p_j >= least, sum p_j = 1: the floor for the small ones, the rest
    in proportion to their counts.

    >>> probabilities(np.array([3.0, 1.0, 0.0]), 0.1).round(3).tolist()
    [0.675, 0.225, 0.1]
    """
    low = np.zeros(len(counts), bool)
    while True:
        rest = counts[~low].sum()
        if rest <= 0:
            return np.full(len(counts), 1.0 / len(counts))
        p = np.where(low, least, counts / rest * (1.0 - least * low.sum()))
        more = (p < least) & ~low
        if not more.any():
            return p
        low |= more


def _refuse(x: np.ndarray, bad: np.ndarray, first_row: int, wanted: str, name: str) -> None:
    if (x < 0).any():
        i, j = np.argwhere(x < 0)[0]
        raise InputError(
            f"Negative values in data: X must hold {wanted} for family={name!r}, got {x[i, j]} "
            f"at row {first_row + i}, column {j}"
        )
    if bad.any():
        i, j = np.argwhere(bad)[0]
        raise InputError(
            f"X must hold {wanted} for family={name!r}, got {x[i, j]} at row {first_row + i}, "
            f"column {j}"
        )
