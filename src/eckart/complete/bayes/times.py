"""Time as a third id: entries are observed in bins of time, and every bin has factors of its own.

    a_ijt = b_i + c_j + d_t + u_i.v_j + u_i.w_t + v_j.w_t + noise,      w_t ~ N(0, 1/p I), d_t ~
    N(0, 1/q), p and q learned under vague priors

This is a factorization machine on three ids. Given two of the three sides the third sees a linear
design, the sum of the other two vectors: rows see v_j + w_t with the offset c_j + d_t + v_j.w_t,
and so on, one row of the design for each pair. Time often says little: the vague priors let p and q
grow until it is switched off, which the Wishart prior of the other sides would not.

Predictions without a time have the form of the model without time. ``level`` takes the mean over
all entries, w' of w_t and d' of d_t, into the biases b_i + u_i.w' and c_j + v_j.w' + d', so that
bins keep w_t - w', d_t - d'. ``settle`` then puts each row at the mean over its own entries, w_i
and d_i: with the factors u_i + w_i and the bias b_i + u_i.w_i + d_i the prediction without a time
is the mean over the times of the row's entries (over all entries for a row that has none). The
prediction at time t adds (u_i + v_j).(w_t - w_i) + d_t - d_i.

Reference: Rendle, Zhang and Koren 2019 (timeSVD++ as a Bayesian factorization machine).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from eckart.complete.bayes.chain import FLOOR, ChainSide, FactorChain
from eckart.complete.bayes.features import VAGUE
from eckart.engines.protocol import Tall
from eckart.matrix import Observed

BINS = 8
"""The stream of the bins' draws: 0 to 7 are those of rows and columns."""
EVERY = 2
"""Sweeps from one draw of the bins to the next: there are far fewer of them than of rows and
columns, each sees hundreds of entries and hardly moves, and to walk over all entries for it costs
as much as a side."""
FEW = 0.5
"""Share of the entries up to which pairs of the two other sides are worth being found: people
observe much at a time."""


class Order(NamedTuple):
    """The pairs of the two other sides that the entries of a side see: where each stands."""

    first: np.ndarray
    second: np.ndarray


class TimedChain(FactorChain):
    """A chain with bins of time; the matrices of rows, columns and bins have one column for each
    pair of the two other sides."""

    def __init__(
        self,
        rows: ChainSide,
        columns: ChainSide,
        bins: ChainSide,
        orders: dict[int, Order],
        noise: str,
        tails: str,
        rng: Any,
        engine: Any,
    ):
        super().__init__(rows, columns, noise, tails, rng, engine)
        self.bins = bins
        self.others = {
            id(rows): (columns, bins, orders[0]),
            id(columns): (rows, bins, orders[1]),
            id(bins): (rows, columns, orders[2]),
        }
        # time is learned from what rows and columns leave
        bins.factors = engine.take(np.zeros(bins.last.shape))

    def _seen(self, side: ChainSide, other: ChainSide) -> tuple[Tall, Tall, Tall | None]:
        one, two, order = self.others[id(side)]
        get, take = self.engine.get, self.engine.take
        design, offset = self.engine.pair_rows(one.factors, two.factors, order.first, order.second)
        q = None
        for s, at in ((one, order.first), (two, order.second)):
            if s.precisions is not None:
                own = np.take(get(s.precisions), at, axis=0)
                q = own if q is None else q * own
        return design, offset, None if q is None else take(q)

    def _prior(
        self,
        side: ChainSide,
        total: np.ndarray,
        gram: np.ndarray,
        scatter: tuple[np.ndarray, int] | None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if side is not self.bins:
            return super()._prior(side, total, gram, scatter)
        d = len(total)
        square = np.array([np.trace(gram[:-1, :-1]), gram[-1, -1]])
        count = side.rows * np.array([d - 1.0, 1.0])
        p, q = np.clip(
            self.rng.gamma(0.5 * count + VAGUE) / (0.5 * square + VAGUE), FLOOR, 1.0 / FLOOR
        )
        own = np.append(np.full(d - 1, p), q)
        return np.zeros(d), np.diag(own), np.diag(np.sqrt(own))

    def _draw_rest(self) -> Callable[[], Tall] | None:
        return self._draw(self.bins, self.columns, BINS) if self.sweeps % EVERY == 0 else None

    def _square(self, misfit: Callable[[], Tall]) -> float:
        """Where bins are drawn they are the last, and their misfit is that of all entries."""
        last = self._draw_rest()
        return (
            super()._square(misfit)
            if last is None
            else float(self.engine.inner(self.bins.ones, last())[0, 0])
        )

    @property
    def sides(self) -> tuple[ChainSide, ...]:
        return *super().sides, self.bins


class Sorted(NamedTuple):
    """The entries placed three times, by rows, by columns and by bins, with a column for each pair
    of the other sides; and where that stands on them."""

    placed: list[Any]
    counts: list[np.ndarray]
    orders: dict[int, Order]

    @classmethod
    def of(
        cls, y: Observed, weights: np.ndarray | None, of: np.ndarray, bins: int, engine: Any
    ) -> Sorted:
        i, j = np.repeat(np.arange(y.shape[0]), y.row_counts()), np.asarray(y.indices, np.intp)
        sides = ((i, y.shape[0], j, of), (j, y.shape[1], i, of), (of, bins, i, j))
        placed, counts, orders = [], [], {}
        for s, (own, size, one, two) in enumerate(sides):
            order = np.argsort(own, kind="stable")
            indptr = np.concatenate([[0], np.cumsum(np.bincount(own, minlength=size))])
            code, place = np.unique(
                one[order].astype(np.int64) * (1 + int(two.max())) + two[order], return_inverse=True
            )
            where = np.divmod(code, 1 + int(two.max()))
            if (
                len(code) > FEW * y.nnz
                # nearly every entry has a pair of its own: in the order of the entries memory is
                # read once
            ):
                place, where = np.arange(y.nnz), (one[order], two[order])
            x = Observed(indptr, place, y.data[order], len(where[0]))
            placed.append(engine.put(x, entry_weights=None if weights is None else weights[order]))
            heavy = own if weights is None else own[weights > 0]
            counts.append(np.bincount(heavy, minlength=size))
            orders[s] = Order(*(np.ascontiguousarray(w, np.intp) for w in where))
        return cls(placed, counts, orders)


def level(draws: dict[str, np.ndarray], shares: np.ndarray) -> dict[str, np.ndarray]:
    """Draws in which the mean over time is part of the biases, and time what is left; arrays are S
    x ... as they are kept.

    With T = [[I, 0], [w'^T, 1]] the factors (u, b) become T (u, b), so that their prior has the
    mean T mu, the precision T^-T L T^-1 and coefficients B T^T.
    """
    out = dict(draws)
    w = draws["time.factors"].astype(np.float64)
    mean = np.einsum("t,std->sd", shares, w)
    out["time.factors"] = (w - mean[:, None]).astype(draws["time.factors"].dtype)
    s, d = mean.shape
    turn = np.tile(np.eye(d), (s, 1, 1))
    turn[:, -1, :-1] = mean[:, :-1]
    back = np.linalg.inv(turn)
    for side in ("rows", "columns"):
        extra = mean[:, -1] if side == "columns" else np.zeros(s)
        for name in ("factors", "link"):
            if f"{side}.{name}" in draws:
                moved = draws[f"{side}.{name}"].copy()
                # T leaves all but the last column as it is
                for a, w, more in zip(moved, mean, extra):
                    a[:, -1] += a[:, :-1] @ w[:-1] + (more if name == "factors" else 0.0)
                out[f"{side}.{name}"] = moved
        mu = np.einsum("sed,sd->se", turn, draws[f"{side}.mu"])
        mu[:, -1] += extra
        out[f"{side}.mu"] = mu
        out[f"{side}.precision"] = np.einsum(
            "sde,sdf,sfg->seg", back, draws[f"{side}.precision"], back
        )
    return out


def times_of_rows(x: Observed, bin_of: np.ndarray, bins: int) -> Any:
    """rows x bins: the share of each bin in the entries of a row."""
    rows, counts = np.repeat(np.arange(x.shape[0]), x.row_counts()), np.maximum(x.row_counts(), 1)
    return sparse.csr_array((1.0 / counts[rows], (rows, bin_of)), shape=(x.shape[0], bins))


def settle(draws: dict[str, np.ndarray], own: Any) -> dict[str, np.ndarray]:
    """Draws with each row at the mean over its own times; ``own`` is rows x bins
    (``times_of_rows``)."""
    u = draws["rows.factors"].copy()
    for s, w in enumerate(draws["time.factors"]):
        mean = own @ w
        u[s, :, -1] += np.einsum("nk,nk->n", u[s, :, :-1], mean[:, :-1]) + mean[:, -1]
        u[s, :, :-1] += mean[:, :-1]
    return draws | {"rows.factors": u}
