"""The sampler of the time model: chains one after another, what is kept of them, and how a killed run goes on.

After ``burn_in`` sweeps every ``thin``-th state of a chain is kept: sums of all cells and of their squares, and of the draw itself what the future depends
on. The answer for a cell is the mean over the kept states of p_i(t mod P) + w_i.x_t + r_it; its deviation makes up for their number.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eckart.certify.chains import ess
from eckart.complete.series.chain import SeriesChain
from eckart.factors import Series
from eckart.io.models.levels import NOTHING, Memory, kept_trace, resumed_trace
from eckart.matrix import Observed
from eckart.trace import StopReason, Trace, Watcher, silent

PROBES = 256
"""Random cells at which mixing is judged."""
QUIET = 1 / 3
"""The share of the burn-in in which rows have next to no part of their own."""
QUANTITY = "log-likelihood of an entry"
DRAWS = ("left", "last", "transition", "shock", "own", "state", "profile", "probes", "levels")


@dataclass
class Kept:
    """Sums over the kept states, and their draws."""

    total: np.ndarray
    square: np.ndarray
    noise: np.ndarray
    draws: dict[str, list[np.ndarray]] = field(default_factory=lambda: {name: [] for name in DRAWS})

    def add(self, chain: SeriesChain, where: tuple[np.ndarray, np.ndarray]) -> None:
        """The present state of a chain."""
        get, own = chain.engine.get, chain.described()
        left, right, profile, states = (get(a) for a in (chain.left, chain.right, chain.profile, chain.states))
        cells = left @ right.T
        cells += states
        cells += np.tile(profile, -(-chain.columns // chain.period))[:, : chain.columns]
        self.total += cells
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
        mean = self.total / count
        each = {name: np.array(values, dtype) for name, values in self.draws.items()}
        each["probes"] = each["probes"].reshape(chains, count // chains, -1)
        each["levels"] = each["levels"].reshape(chains, count // chains)
        spread = np.sqrt(np.maximum(self.square / count - mean**2, 0.0) * widened(each["probes"]))
        each["own"][:, :, 0] = np.minimum(each["own"][:, :, 0], np.nextafter(dtype.type(1), dtype.type(0)))
        return Series(
            (centre[:, None] + scale[:, None] * mean).astype(dtype), (scale[:, None] * spread).astype(dtype),
            (scale * np.sqrt(self.noise / count)).astype(dtype), centre.astype(dtype), scale.astype(dtype), **each, rows=x.rows, columns=x.columns,
        )  # fmt: skip


def widened(probes: np.ndarray) -> float:
    """By how much the variance of the draws of a cell is less than that of the cell around their mean.

    Draws that are worth e independent ones have on average the share 1 - 1/e of the posterior variance, and their mean misses that of the posterior by a
    further 1/e of it: (e + 1) / (e - 1), with the median of e over the probes (chains x draws x cells). Chains that are worth less than two draws know
    nothing about their variance: they count as two.
    """
    worth = max(float(np.median(ess(probes))), 2.0)
    return (worth + 1) / (worth - 1)


def standardised(x: Observed) -> tuple[Observed, np.ndarray, np.ndarray]:
    """Rows with mean 0 and variance 1, and what they were; a row without entries takes those of all, one without variation a variance of all."""
    rows, counts = np.repeat(np.arange(x.shape[0]), x.row_counts()), x.row_counts()
    values = x.data.astype(np.float64)
    some = np.maximum(counts, 1)
    centre = np.where(counts > 0, np.bincount(rows, values, x.shape[0]) / some, values.mean())
    scale = np.sqrt(np.bincount(rows, np.square(values - centre[rows]), x.shape[0]) / some)
    usual = float(np.median(scale[scale > 0])) if (scale > 0).any() else float(np.abs(values).max()) or 1.0
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
    """Draw from the posterior of the time model of these rows; an interrupt keeps the states that there are."""
    y, centre, scale = standardised(x)
    placed = engine.put(y)
    data = engine.take(y.data, np.float64)
    probe = np.random.default_rng(0)
    where = probe.integers(x.shape[0], size=PROBES), probe.integers(x.shape[1], size=PROBES)
    each = -(-n_samples // n_chains)
    last = burn_in + each * thin
    zeros = np.zeros(x.shape)
    kept, trace = Kept(zeros, zeros.copy(), np.zeros(x.shape[0])), Trace(QUANTITY, reason=StopReason.MAX_ITER)
    begun = memory.last()
    first, done = 0, 0
    if begun is not None:
        first, done = int(begun["chain"]), int(begun["sweep"])
        total, square, noise = (np.array(begun[name]) for name in ("total", "square", "noise"))
        kept = Kept(total, square, noise, _lists(begun["draws"]))
        trace = resumed_trace(QUANTITY, begun["trace"])
        trace.reason = StopReason.MAX_ITER
    try:
        for c in range(first, n_chains):
            # what a chain begins with is drawn again where it goes on: not from the generator, which stands where the killed run left it
            chain = SeriesChain(placed, data, k, period, rng if begun is None else np.random.default_rng(0), engine)
            if begun is not None:
                chain.rng = rng
                chain.take(begun["state"])
            for sweep in range(done, last):
                memory.offer(
                    {
                        "chain": c, "sweep": sweep, "total": kept.total, "square": kept.square, "noise": kept.noise, "draws": kept.draws,
                        "trace": lambda: kept_trace(trace), "state": chain.arrays,
                    }
                )  # fmt: skip
                trace.add(chain.sweep(sweep < burn_in, sweep < QUIET * burn_in))
                if sweep >= burn_in and (sweep - burn_in + 1) % thin == 0:
                    kept.add(chain, where)
                watch("sweeps", c * last + sweep + 1, n_chains * last)
            begun, done = None, 0
    except KeyboardInterrupt:
        if not len(trace):
            raise
        if not kept.draws["left"]:  # before a state was to be kept: the one there is
            kept.add(chain, where)
        trace.reason = StopReason.INTERRUPTED
    # the draws of chains that were not finished cannot be compared: they count as one
    return kept.answer(x, centre, scale, 1 if trace.reason is StopReason.INTERRUPTED else n_chains), trace


def _lists(kept: Any) -> dict[str, list[np.ndarray]]:
    return {name: [np.asarray(a) for a in kept[name]] for name in DRAWS}
