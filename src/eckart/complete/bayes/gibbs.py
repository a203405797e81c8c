"""The Gibbs sampler: chains that run in step, the states that are kept of them, and how a killed
run goes on.

After ``burn_in`` sweeps every ``thin``-th state of each chain (``chain``) is kept. The answer is
the mean over the kept states of mean + b_i + c_j + u_i.v_j; with the factors of all states side by
side it is one ``LowRank``.

Where ``burn_in`` is open, chains whose states fail the certificate, or differ so far on the noise
that intervals would be others, go on: all sweeps so far become the burn-in, and as many states are
drawn anew, over as many sweeps as there were. So a run has T, 2 T, 4 T, ... sweeps, the later half
of which counts, and the model is as large as it would have been. It ends when they agree, or when
the next doubling would be more than ``budget_of`` allows; time has no say, so that a seed gives one
answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.complete.bayes.chain import SETTLING, ChainSide, FactorChain
from eckart.complete.bayes.features import Link, link_of
from eckart.complete.bayes.likelihood import (
    AttributeLink,
    Likelihood,
    SeveralLinks,
    begin_near_mode,
)
from eckart.complete.bayes.posterior import Posterior, SideDraws, TimeDraws
from eckart.complete.bayes.times import BINS, Sorted, TimedChain, level, settle, times_of_rows
from eckart.complete.factors.majorise import centre
from eckart.complete.side_information import NO_SIDE_INFORMATION, KnownFeatures, SideInformation
from eckart.factors import LowRank
from eckart.io.models.checkpoint import NOTHING as NO_MEMORY
from eckart.io.models.checkpoint import Memory, kept_trace, resumed_trace
from eckart.io.models.save import steps_of
from eckart.matrix import Observed
from eckart.matrix_blocks import of_each_part, parts_of, with_values
from eckart.terms import Loss, Ordered
from eckart.trace import StopReason, Trace, Watcher, silent

BURN_IN = 200
"""Sweeps before the first state is kept, where the number is open."""
NUMBERS = 5.5e6
"""Numbers in all draws of a model from which they are kept in steps of a byte: a file of 22 MB in
single precision."""
LONGER, WORK = 8, 5e10
"""Chains that do not agree go on to at most so many times the sweeps that were asked for, while all
sweeps together take at most so many multiplications: half a minute on one core, where 2e9 of them a
second were measured. What needs more draws than that has a noise that the entries do not
determine."""


class Drawn(NamedTuple):
    """What ``solve`` finds; ``note``: what there is to say of the number of sweeps ("": it is as
    was asked for)."""

    factors: LowRank
    posterior: Posterior
    certificate: Certificate
    trace: Trace
    note: str


class KeptDraws:
    """The states kept so far: arrays of shape chains x draws x ..., filled as the chains run; the
    large ones in the precision of the data."""

    def __init__(
        self,
        chains: list[FactorChain],
        draws: int,
        dtype: np.dtype,
        side_information: SideInformation = NO_SIDE_INFORMATION,
    ):
        self.chains, self.draws, self.dtype, self.side_information, self.done = (
            chains,
            draws,
            dtype,
            side_information,
            0,
        )
        self.arrays: dict[str, np.ndarray] = {}

    def add(self) -> None:
        """Keep the present state of every chain."""
        for c, chain in enumerate(self.chains):
            for name, value in _state(chain, self.dtype).items():
                if name not in self.arrays:
                    dtype = (
                        self.dtype
                        if name.endswith(("factors", "precisions", "tails", "link"))
                        else np.dtype(np.float64)
                    )
                    self.arrays[name] = np.zeros(
                        (len(self.chains), self.draws, *value.shape), dtype
                    )
                self.arrays[name][c, self.done] = value
        self.done += 1

    def state(self) -> dict[str, Any]:
        """For a checkpoint: what is kept so far, and where the chains are."""
        drawn = {name: a[:, : self.done] for name, a in self.arrays.items()}
        return {
            "done": self.done,
            "drawn": drawn,
            "chains": [chain.kept() for chain in self.chains],
        }

    def resume(self, state: Any) -> None:
        """The inverse of ``state``."""
        self.done = state["done"]
        for name, a in state["drawn"].items():
            self.arrays[name] = np.zeros((len(a), self.draws, *a.shape[2:]), a.dtype)
            self.arrays[name][:, : self.done] = a
        for chain, kept in zip(self.chains, state["chains"], strict=True):
            chain.take(kept)

    def stacked(self, name: str) -> np.ndarray:
        """S x ..., chain after chain."""
        a = self.arrays[name]
        return a[:, : self.done].reshape(-1, *a.shape[2:])

    @property
    def loss(self) -> Loss | None:
        """The loss of the chains; its thresholds are kept draw by draw."""
        likelihood = self.chains[0].likelihood
        return None if likelihood is None else likelihood.loss

    def finish(
        self, mean: float, scale: float, x: Observed, seen: tuple[bool, bool]
    ) -> tuple[LowRank, Posterior]:
        """The posterior mean as one LowRank and the rest of the draws."""
        dtype = x.dtype
        factors, sides = [], []
        draws = {name: self.stacked(name) for name in self.arrays}
        time = None
        if self.side_information.bins is not None and self.side_information.bin_of is not None:
            counts = self.side_information.bins.counts
            draws, own_times = (
                level(draws, counts / counts.sum()),
                times_of_rows(x, self.side_information.bin_of, len(counts)),
            )
            draws = settle(draws, own_times)
            time = TimeDraws(draws["time.factors"], self.side_information.bins.ends, own_times)
        for name, own_seen in zip(("rows", "columns"), seen):
            u, mu, precision, noise = (
                draws[f"{name}.{n}"] for n in ("factors", "mu", "precision", "noise")
            )
            precisions, link, tails, degrees = (
                draws.get(f"{name}.{n}") for n in ("precisions", "link", "tails", "degrees")
            )
            s, n, d = u.shape
            stack = np.empty((n, s, d - 1), dtype)
            np.multiply(u[:, :, :-1].transpose(1, 0, 2), dtype.type(np.sqrt(scale / s)), out=stack)
            factors.append(rounded(stack.reshape(n, s * (d - 1)), s * d * sum(x.shape) > NUMBERS))
            own, heavy = (
                None if a is None else np.ascontiguousarray(a.T) for a in (precisions, tails)
            )
            bias = rounded(np.ascontiguousarray(u[:, :, -1].T), False)
            sides.append(SideDraws(bias, mu, precision, noise, own, link, own_seen, heavy, degrees))
        posterior = Posterior(
            sides[0],
            sides[1],
            draws["alpha"],
            mean,
            scale,
            len(self.chains),
            time,
            draws.get("thresholds"),
            self.loss,
        )
        b, c = ((scale * side.bias.mean(axis=1, dtype=np.float64)).astype(dtype) for side in sides)
        return LowRank(
            factors[0], factors[1], mean, b, c, rows=x.rows, columns=x.columns
        ), posterior


def solve(
    x: Observed,
    k: int,
    *,
    n_samples: int,
    burn_in: int | None,
    thin: int,
    n_chains: int,
    noise: str,
    tails: str,
    features: tuple[bool, bool],
    weights: np.ndarray | None,
    rng: np.random.Generator,
    engine: Any,
    certify: Callable[[LowRank, Posterior], Certificate],
    side_information: SideInformation = NO_SIDE_INFORMATION,
    loss: Loss | None = None,
    watch: Watcher = silent,
    memory: Memory = NO_MEMORY,
) -> Drawn:
    """Run the chains; an interrupt keeps what was drawn so far. With a ``loss`` values come
    encoded, and mean and scale are those of its natural parameter. ``burn_in`` None is ``BURN_IN``,
    and more where the certificate asks for it."""
    if loss is None:
        mean, scale = _mean_and_scale(x, weights)
        y = with_values(x, partial(_standardised, mean, scale), np.float64)
    else:
        y, scale = with_values(x, _bare, np.float64), 1.0
        # thresholds were set so that s = 0 gives the shares of the grades
        mean = 0.0 if isinstance(loss, Ordered) else centre(y, loss, None)
    chains = _start(y, k, n_chains, noise, tails, features, side_information, weights, rng, engine)
    before, every = BURN_IN if burn_in is None else burn_in, float(thin)
    for chain in chains:
        chain.settling = min(SETTLING, before // 2)
    if loss is not None:
        made = Likelihood.shared(loss, mean, y, lambda y, w: _sides(y, w, side_information, engine))
        ids_only = chains[0].rows.x if side_information.bins is None else engine.put(y)
        for chain in chains:
            chain.likelihood = made()
            begin_near_mode(chain, ids_only)
    draws = -(-n_samples // n_chains)
    first = total = before + draws * thin
    most = first if burn_in is not None else budget_of(x, k, n_chains, first)
    kept = KeptDraws(chains, draws, x.dtype, side_information)
    trace = Trace("log-likelihood of an observed entry", reason=StopReason.MAX_ITER)
    if (was := memory.last()) is not None:
        trace = resumed_trace(trace.quantity, was["trace"])
        kept.resume(was)
    sweep = len(trace)
    while sweep > total:  # a run that was killed when it had gone on
        before, total, every = total, 2 * total, total / draws
    works: list[Any] = [partial(_swept, chain) for chain in chains]
    found: tuple[LowRank, Posterior, Certificate] | None = None

    def finished() -> tuple[LowRank, Posterior, Certificate]:
        factors, posterior = kept.finish(mean, scale, x, features)
        return factors, posterior, certify(factors, posterior)

    try:
        while True:
            while sweep < total:
                trace.add(np.mean(engine.together(chains[0].rows.x, works)) - np.log(scale))
                sweep += 1
                if sweep > before and sweep - before >= round((kept.done + 1) * every):
                    kept.add()
                watch("sweeps", sweep, total)
                if sweep < total:
                    memory.offer(lambda: kept.state() | {"trace": kept_trace(trace)})
            found = finished()
            if _settled(found[2]) or 2 * total > most:
                break
            before, total, every, kept.done = total, 2 * total, total / draws, 0
    except KeyboardInterrupt:
        if not len(trace):
            raise
        trace.reason = StopReason.INTERRUPTED
        if (
            found is None or kept.done == draws
        ):  # else the states before an interrupted doubling are more than those in it
            if not kept.done:
                kept.add()
            found = finished()
    return Drawn(
        *found,
        trace,
        _sampling_note(first, total, most, _settled(found[2])) if burn_in is None else "",
    )


def budget_of(x: Observed, k: int, n_chains: int, asked: int) -> int:
    """The most sweeps of a chain, of ``asked`` ones, see ``LONGER``: a sweep takes (k + 1)^2
    multiplications for an entry and (k + 1)^3 / 3 for a row or column, entries being seen from both
    sides."""
    one = n_chains * (2.0 * x.nnz * (k + 1) ** 2 + sum(x.shape) * (k + 1) ** 3 / 3)
    return max(asked, min(LONGER * asked, int(WORK / one)))


def _settled(found: Certificate) -> bool:
    """Whether more sweeps would say nothing new: predictions agree, and so do intervals (a noise
    that would change them is a beware)."""
    return found.holds and not found.beware


def _sampling_note(asked: int, done: int, most: int, holds: bool) -> str:
    """The number of sweeps in words."""
    if done == asked and (holds or 2 * done > most):
        return f"{asked:,} sweeps" + (
            "" if holds else f"; a doubling would go beyond the budget of {most:,}"
        )
    return f"chains went on from {asked:,} to {done:,} sweeps, of at most {most:,}: " + (
        "they agree now" if holds else "they do not agree yet"
    )


def rounded(a: np.ndarray, by_bytes: bool) -> np.ndarray:
    """Draws to seven digits, or to 127 steps of a power of two for each row: what chance leaves of
    a draw is coarser, and means over draws lose nothing that counts. In a file they then take half
    or an eighth of the room (``io.models.short``). What single precision cannot hold stays as it
    is."""
    most = np.abs(a).max(initial=0.0)
    if by_bytes:
        step = steps_of(a)
        return np.clip(np.rint(a / step), -127, 127) * step
    return a.astype(np.float32).astype(a.dtype) if 1e-25 < most < 1e25 else a


def _swept(chain: FactorChain, engine: Any) -> float:
    """A sweep of a chain on the engine that it has for it: chains share the threads before the rows
    of one do, since they wait for nothing in one another."""
    chain.engine = engine
    return chain.sweep()


def _mean_and_scale(x: Observed, weights: np.ndarray | None) -> tuple[float, float]:
    """Of the observed values; of parts where they are, in two passes."""
    if weights is not None or parts_of(x) is None:
        mean = float(np.average(x.data.astype(np.float64), weights=weights))
        return mean, float(np.sqrt(np.average((x.data - mean) ** 2, weights=weights))) or 1.0
    mean = sum(of_each_part(x, _total)) / x.nnz
    return mean, float(np.sqrt(sum(of_each_part(x, partial(_square, mean))) / x.nnz)) or 1.0


def _total(x: Observed) -> float:
    return float(x.data.sum(dtype=np.float64))


def _square(mean: float, x: Observed) -> float:
    return float(np.square(x.data - mean, dtype=np.float64).sum())


def _bare(x: Observed) -> Observed:
    return replace(x, data=x.data.astype(np.float64), rows=None, columns=None)


def _standardised(mean: float, scale: float, x: Observed) -> Observed:
    return replace(x, data=(x.data.astype(np.float64) - mean) / scale, rows=None, columns=None)


def _start(
    y: Observed,
    k: int,
    n_chains: int,
    noise: str,
    tails: str,
    features: tuple[bool, bool],
    side_information: SideInformation,
    weights: np.ndarray | None,
    rng: np.random.Generator,
    engine: Any,
) -> list[FactorChain]:
    """Chains at random states; they share the entries and what is fixed about the features."""
    links = [
        _link(x, k + 1, seen, known)
        for x, seen, known in (
            (y, features[0], side_information.rows),
            (y.transposed() if features[1] else y, features[1], side_information.columns),
        )
    ]
    chains: list[FactorChain] = []
    if side_information.bins is not None and side_information.bin_of is not None:
        seen = Sorted.of(
            y, weights, side_information.bin_of, len(side_information.bins.counts), engine
        )
        for stream in rng.spawn(n_chains):
            fresh = [None if link is None else link.fresh() for link in (*links, None)]
            sides = [
                ChainSide.of(engine, x, n, k + 1, link)
                for x, n, link in zip(seen.placed, seen.counts, fresh)
            ]
            chains.append(
                TimedChain(sides[0], sides[1], sides[2], seen.orders, noise, tails, stream, engine)
            )
        return chains
    x = engine.put(y, entry_weights=weights)
    counts = x.counts, x.T.counts  # the columns' view is made in any case, and has them
    if weights is not None:  # an entry without weight is none
        heavy = np.concatenate([[0], np.cumsum(weights > 0)])[y.indptr]
        counts = np.diff(heavy), np.bincount(y.indices[weights > 0], minlength=y.shape[1])
    for stream in rng.spawn(n_chains):
        fresh = [None if link is None else link.fresh() for link in links]
        sides = [
            ChainSide.of(engine, x.T if side else x, counts[side], k + 1, fresh[side])
            for side in (0, 1)
        ]
        chains.append(FactorChain(sides[0], sides[1], noise, tails, stream, engine))
    return chains


def _sides(
    y: Observed, weights: Any, side_information: SideInformation, engine: Any
) -> dict[int, Any]:
    """Entries placed as every side of the chains sees them, by the stream of its draws."""
    if side_information.bins is None or side_information.bin_of is None:
        x = engine.put(y, entry_weights=weights)
        return {0: x, 1: x.T}
    return dict(
        zip(
            (0, 1, BINS),
            Sorted.of(
                y, weights, side_information.bin_of, len(side_information.bins.counts), engine
            ).placed,
        )
    )


def _link(x: Observed, d: int, seen: bool, known: KnownFeatures | None) -> Link | None:
    """What the prior means of the rows of x depend on: attributes, then who-rated-what; None for
    neither."""
    parts: list[Any] = (
        [] if known is None else [AttributeLink(known.numbers, known.encoding.groups, d)]
    )
    if seen:
        parts.append(link_of(x, d))
    return SeveralLinks(parts) if len(parts) > 1 else parts[0] if parts else None


def _state(chain: FactorChain, dtype: np.dtype) -> dict[str, np.ndarray]:
    """What is kept of a chain's state; factors are rounded to the precision of the data where they
    are, and half of them then travels."""
    out = {"alpha": np.array(chain.alpha)}
    if chain.likelihood is not None and len(chain.likelihood.thresholds):
        out["thresholds"] = chain.likelihood.thresholds
    for name, side in (("rows", chain.rows), ("columns", chain.columns)):
        get, factors = chain.engine.get, chain.engine.take(side.factors, dtype)
        out |= {
            f"{name}.factors": get(factors),
            f"{name}.mu": side.mu,
            f"{name}.precision": side.precision,
        }
        out[f"{name}.noise"] = np.array([side.shape, side.scale])
        if side.tails is not None:
            out |= {
                f"{name}.tails": get(side.tails)[:, 0],
                f"{name}.degrees": np.array(side.degrees),
            }
        if side.precisions is not None:
            out[f"{name}.precisions"] = get(side.precisions)[:, 0]
        if side.link is not None:
            out[f"{name}.link"] = side.link.weights()
    if isinstance(chain, TimedChain):
        out["time.factors"] = chain.engine.get(chain.bins.factors)
    return out
