"""The sampler of the time model: chains one after another, what is kept of them, and how a killed
run goes on.

After ``burn_in`` sweeps every ``thin``-th state of a chain is kept: sums of all cells and of their
squares, and of the draw itself what the future depends on. The answer for a cell is the mean over
the kept states of p_i(t mod P) + w_i.x_t + r_it; its deviation makes up for their number.

Where ``burn_in`` is open, chains whose predictions do not agree go on, and keep twice as many
states, until the certificate holds or ``budget_of`` is spent. States that were kept before stay: at
four times the sweeps, errors on blocks of eight panels (eleven masks) were 2.5 % larger without
them, .5 % with them. Monte Carlo errors fall with the root of the sweeps at best; chains that are
too far from one another for the budget do not go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.chains import MONTE_CARLO
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
BURN_IN = 100
"""Sweeps before the first state is kept, where the number is open."""
LONGER, WORK = 4, 4e10
"""Chains that do not agree go on to at most so many times the sweeps that were asked for, while all
sweeps together take at most so many cells times squared numbers of a row."""
QUANTITY = "log-likelihood of an entry"
DRAWS = ("left", "last", "transition", "shock", "own", "state", "profile", "probes", "levels")


@dataclass
class KeptSeries:
    """Sums over the kept states (``total``: of each half of a chain, of which each keeps so many
    states), and their draws; ``halves``: where each of them was added."""

    each: int
    total: np.ndarray
    square: np.ndarray
    noise: np.ndarray
    draws: dict[str, list[np.ndarray]] = field(default_factory=lambda: {name: [] for name in DRAWS})
    halves: list[int] = field(default_factory=list)

    def go_on(self) -> None:
        """Twice as many states: those that there are become the first half of their chain."""
        self.each *= 2
        self.total[::2] += self.total[1::2]
        self.total[1::2] = 0.0
        self.halves = [half - half % 2 for half in self.halves]

    def add(self, chain: SeriesChain, where: tuple[np.ndarray, np.ndarray], c: int) -> None:
        """The present state of the chain c."""
        get, own = chain.engine.get, chain.described()
        left, right, profile, states = (
            get(a) for a in (chain.left, chain.right, chain.profile, chain.states)
        )
        cells = left @ right.T
        cells += states
        cells += np.tile(profile, -(-chain.columns // chain.period))[:, : chain.columns]
        before = sum(half // 2 == c for half in self.halves)
        self.halves.append(2 * c + int(2 * before >= self.each))
        self.total[self.halves[-1]] += cells
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
        halves = np.bincount(self.halves, minlength=len(self.total))
        order = np.argsort(np.array(self.halves) // 2, kind="stable")
        each = {name: np.array(values, dtype)[order] for name, values in self.draws.items()}
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


class SeriesDraws(NamedTuple):
    """What ``solve`` finds; ``note``: what there is to say of the number of sweeps ("": it is as
    was asked for)."""

    factors: Series
    certificate: Certificate
    trace: Trace
    note: str


def solve(
    x: Observed,
    k: int,
    period: int,
    *,
    n_samples: int,
    burn_in: int | None,
    thin: int,
    n_chains: int,
    engine: Any,
    rng: np.random.Generator,
    certify: Callable[[Series], Certificate],
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> SeriesDraws:
    """Draw from the posterior of the time model of these rows; an interrupt keeps the states that
    there are. ``burn_in`` None is ``BURN_IN``, and more where the certificate asks for it."""
    y, centre, scale = standardised(x)
    placed = engine.put(y)
    data = engine.take(y.data, np.float64)
    probe = np.random.default_rng(0)
    where = probe.integers(x.shape[0], size=PROBES), probe.integers(x.shape[1], size=PROBES)
    each, settling = -(-n_samples // n_chains), BURN_IN if burn_in is None else burn_in
    most = budget_of(x, k, n_chains, settling + each * thin)
    chains: list[SeriesChain] = []
    sums, squares = np.zeros((2 * n_chains, *x.shape)), np.zeros(x.shape)
    kept = KeptSeries(each, sums, squares, np.zeros(x.shape[0]))
    trace = Trace(QUANTITY, reason=StopReason.MAX_ITER)
    at, done = 0, 0
    if (was := memory.last()) is not None:
        at, done = int(was["chain"]), int(was["sweep"])
        sums, squares, noise = (np.array(was[name]) for name in ("total", "square", "noise"))
        halves = [int(half) for half in was["halves"]]
        kept = KeptSeries(int(was["each"]), sums, squares, noise, _lists(was["draws"]), halves)
        trace = resumed_trace(QUANTITY, was["trace"])
        trace.reason = StopReason.MAX_ITER
        for one in was["states"]:
            # what a chain begins with is not drawn from the generator, which stands where the
            # killed run left it
            chain = SeriesChain(placed, data, k, period, np.random.default_rng(0), engine)
            chain.rng = rng
            chain.take(one)
            chains.append(chain)

    def finished(comparable: int = n_chains) -> tuple[Series, Certificate]:
        factors = kept.answer(x, centre, scale, comparable)
        return factors, certify(factors)

    def states() -> list[dict[str, Any]]:
        return [chain.arrays() for chain in chains]

    def planned(states: int) -> int:
        return settling + states * thin

    try:
        while True:
            begin = 0 if kept.each == each else planned(kept.each // 2)
            total = planned(kept.each)
            for c in range(at, n_chains):
                if c == len(chains):
                    chains.append(SeriesChain(placed, data, k, period, rng, engine))
                chain = chains[c]
                for sweep in range(done or begin, total):
                    memory.offer(
                        {
                            "chain": c,
                            "sweep": sweep,
                            "total": kept.total,
                            "square": kept.square,
                            "noise": kept.noise,
                            "draws": kept.draws,
                            "halves": kept.halves,
                            "each": kept.each,
                            "trace": lambda: kept_trace(trace),
                            "states": states,
                        }
                    )
                    trace.add(chain.sweep(sweep < settling, sweep < QUIET * settling))
                    if sweep >= settling and (sweep - settling + 1) % thin == 0:
                        kept.add(chain, where, c)
                    watch("sweeps", len(trace), n_chains * total)
                done = 0
            at, found = 0, finished()
            if (
                burn_in is not None
                or planned(2 * kept.each) > most
                or not within_reach(found[1], most / total)
            ):
                break
            kept.go_on()
    except KeyboardInterrupt:
        if not len(trace):
            raise
        trace.reason = StopReason.INTERRUPTED
        if not kept.halves:  # before a state was to be kept: the one there is
            kept.add(chain, where, 0)
        # the draws of chains that were not finished cannot be compared: they count as one
        found = finished(1)
    note = sampling_note(planned(each), total, most, found[1].holds) if burn_in is None else ""
    return SeriesDraws(*found, trace, note)


def within_reach(found: Certificate, longer: float) -> bool:
    """Whether so many times the sweeps may let a certificate hold that does not."""
    error = next(check for check in found.checks if check.name == MONTE_CARLO)
    return not found.holds and error.value <= error.limit * np.sqrt(longer)


def sampling_note(asked: int, done: int, most: int, holds: bool) -> str:
    """The number of sweeps in words."""
    went = f"{done:,} sweeps of each chain" + (f", {asked:,} at first" if done > asked else "")
    return went + ("" if holds else f"; the budget of {most:,} is not enough for chains to agree")


def budget_of(x: Observed, k: int, n_chains: int, asked: int) -> int:
    """The most sweeps of a chain, of ``asked`` ones, see ``LONGER``."""
    one = n_chains * float(x.shape[0] * x.shape[1]) * (k + 8) ** 2
    return max(asked, min(LONGER * asked, int(WORK / one)))


def _lists(kept: Any) -> dict[str, list[np.ndarray]]:
    return {name: [np.asarray(a) for a in kept[name]] for name in DRAWS}
