"""The sampler of the time model: chains one after another, what is kept of them, and how a killed
run goes on.

After ``burn_in`` sweeps every ``thin``-th state of a chain is kept: sums of all cells and of their
squares, and of the draw itself what the future depends on. The answer for a cell is the mean over
the kept states of p_i(t mod P) + w_i.x_t + r_it; its deviation makes up for their number.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eckart.complete.series.chain import SeriesChain
from eckart.factors import Series
from eckart.io.models.checkpoint import NOTHING, Memory, kept_trace, resumed_trace
from eckart.matrix import Observed
from eckart.trace import StopReason, Trace, Watcher, silent

PROBES = 256
"""Random cells at which mixing is judged."""
QUIET = 1 / 3
"""The share of the burn-in in which rows have next to no part of their own."""
SLOW = 1.5
"""Of the variance between halves, which are few: four of them know it so badly that an interval of
90 % reaches a half farther (the t distribution of three degrees of freedom: 2.35 deviations instead
of 1.64, where nothing else varies). On blocks of 60 steps taken out of panels, 1, 1.5 and 2 covered
.897, .904 and .908 on the half of the panels that chose, and .875, .885 and .891 on the others; of
both .879 with one factor for all cells."""
QUANTITY = "log-likelihood of an entry"
DRAWS = ("left", "last", "transition", "shock", "own", "state", "profile", "probes", "levels")


@dataclass
class KeptSeries:
    """Sums over the kept states (``total``: of each half of a chain, of which each keeps so many
    states), and their draws."""

    each: int
    total: np.ndarray
    square: np.ndarray
    noise: np.ndarray
    draws: dict[str, list[np.ndarray]] = field(default_factory=lambda: {name: [] for name in DRAWS})

    def add(self, chain: SeriesChain, where: tuple[np.ndarray, np.ndarray]) -> None:
        """The present state of a chain."""
        get, own = chain.engine.get, chain.described()
        left, right, profile, states = (
            get(a) for a in (chain.left, chain.right, chain.profile, chain.states)
        )
        cells = left @ right.T
        cells += states
        cells += np.tile(profile, -(-chain.columns // chain.period))[:, : chain.columns]
        chain_of, at = divmod(len(self.draws["left"]), self.each)
        self.total[2 * chain_of + int(2 * at >= self.each)] += cells
        self.square += np.square(cells)
        self.noise += own[:, 2]
        k, fixed = chain.k, left[:, chain.k :] @ right[: chain.period, chain.k :].T
        drawn = (
            left[:, :k],
            right[-1, :k],
            chain.link,
            chain.shock,
            own,
            states[:, -1],
            profile + fixed,
            cells[where],
            np.log(own[:, 2]).mean(keepdims=True),
        )
        for name, value in zip(DRAWS, drawn):
            self.draws[name].append(np.array(value))

    def answer(self, x: Observed, centre: np.ndarray, scale: np.ndarray, chains: int) -> Series:
        """In the units and the precision of the data."""
        count, dtype = len(self.draws["left"]), x.dtype
        mean = self.total.sum(axis=0) / count
        at = np.arange(count)
        halves = np.bincount(
            2 * (at // self.each) + (2 * (at % self.each) >= self.each), minlength=len(self.total)
        )
        each = {name: np.array(values, dtype) for name, values in self.draws.items()}
        each["probes"] = each["probes"].reshape(chains, count // chains, -1)
        each["levels"] = each["levels"].reshape(chains, count // chains)
        spread = np.sqrt(variance_of(self.total, self.square, halves))
        each["own"][:, :, 0] = np.minimum(
            each["own"][:, :, 0], np.nextafter(dtype.type(1), dtype.type(0))
        )
        return Series(
            (centre[:, None] + scale[:, None] * mean).astype(dtype),
            (scale[:, None] * spread).astype(dtype),
            (scale * np.sqrt(self.noise / count)).astype(dtype),
            centre.astype(dtype),
            scale.astype(dtype),
            **each,
            rows=x.rows,
            columns=x.columns,
        )


def variance_of(sums: np.ndarray, squares: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The posterior variance of cells, from sums of their draws in each half of a chain (halves x
    ...), sums of all squares, and draws of each half.

        W + SLOW (1 + 1/G) B      W: within the G halves,  B: of their means

    Halves of chains that mix well differ by chance, and B is W over their draws. Where they do not
    (in a long gap a cell moves slowest), they are as many answers, of which none is known to be
    right (Rubin's rule for several imputations).
    """
    sums, counts = sums[counts > 0], counts[counts > 0]
    groups, size = len(counts), counts.sum()
    means = sums / counts.reshape(-1, *[1] * (sums.ndim - 1))
    within = (squares - np.square(means).T.dot(counts).T) / max(size - groups, 1)
    between = means.var(axis=0, ddof=1) if groups > 1 else 0.0
    return np.maximum(within, 0.0) + SLOW * (1 + 1 / groups) * between


def standardised(x: Observed) -> tuple[Observed, np.ndarray, np.ndarray]:
    """Rows with mean 0 and variance 1, and what they were; a row without entries takes those of
    all, one without variation a variance of all."""
    rows, counts = np.repeat(np.arange(x.shape[0]), x.row_counts()), x.row_counts()
    values = x.data.astype(np.float64)
    some = np.maximum(counts, 1)
    centre = np.where(counts > 0, np.bincount(rows, values, x.shape[0]) / some, values.mean())
    scale = np.sqrt(np.bincount(rows, np.square(values - centre[rows]), x.shape[0]) / some)
    usual = (
        float(np.median(scale[scale > 0]))
        if (scale > 0).any()
        else float(np.abs(values).max()) or 1.0
    )
    # below a billionth of the usual a row's variation is rounding
    scale = np.where(scale > 1e-9 * usual, scale, usual)
    return replace(x, data=(values - centre[rows]) / scale[rows]), centre, scale


def solve(
    x: Observed,
    k: int,
    period: int,
    *,
    n_samples: int,
    burn_in: int,
    thin: int,
    n_chains: int,
    engine: Any,
    rng: np.random.Generator,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> tuple[Series, Trace]:
    """Draw from the posterior of the time model of these rows; an interrupt keeps the states that
    there are."""
    y, centre, scale = standardised(x)
    placed = engine.put(y)
    data = engine.take(y.data, np.float64)
    probe = np.random.default_rng(0)
    where = probe.integers(x.shape[0], size=PROBES), probe.integers(x.shape[1], size=PROBES)
    each = -(-n_samples // n_chains)
    last = burn_in + each * thin
    kept, trace = (
        KeptSeries(
            each, np.zeros((2 * n_chains, *x.shape)), np.zeros(x.shape), np.zeros(x.shape[0])
        ),
        Trace(QUANTITY, reason=StopReason.MAX_ITER),
    )
    resumed = memory.last()
    first, done = 0, 0
    if resumed is not None:
        first, done = int(resumed["chain"]), int(resumed["sweep"])
        total, square, noise = (np.array(resumed[name]) for name in ("total", "square", "noise"))
        kept = KeptSeries(each, total, square, noise, _lists(resumed["draws"]))
        trace = resumed_trace(QUANTITY, resumed["trace"])
        trace.reason = StopReason.MAX_ITER
    try:
        for c in range(first, n_chains):
            # what a chain begins with is drawn again where it goes on: not from the generator,
            # which stands where the killed run left it
            chain = SeriesChain(
                placed,
                data,
                k,
                period,
                rng if resumed is None else np.random.default_rng(0),
                engine,
            )
            if resumed is not None:
                chain.rng = rng
                chain.take(resumed["state"])
            for sweep in range(done, last):
                memory.offer(
                    {
                        "chain": c,
                        "sweep": sweep,
                        "total": kept.total,
                        "square": kept.square,
                        "noise": kept.noise,
                        "draws": kept.draws,
                        "trace": lambda: kept_trace(trace),
                        "state": chain.arrays,
                    }
                )
                trace.add(chain.sweep(sweep < burn_in, sweep < QUIET * burn_in))
                if sweep >= burn_in and (sweep - burn_in + 1) % thin == 0:
                    kept.add(chain, where)
                watch("sweeps", c * last + sweep + 1, n_chains * last)
            resumed, done = None, 0
    except KeyboardInterrupt:
        if not len(trace):
            raise
        if not kept.draws["left"]:  # before a state was to be kept: the one there is
            kept.add(chain, where)
        trace.reason = StopReason.INTERRUPTED
    # the draws of chains that were not finished cannot be compared: they count as one
    return kept.answer(
        x, centre, scale, 1 if trace.reason is StopReason.INTERRUPTED else n_chains
    ), trace


def _lists(kept: Any) -> dict[str, list[np.ndarray]]:
    return {name: [np.asarray(a) for a in kept[name]] for name in DRAWS}
