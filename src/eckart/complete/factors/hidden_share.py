"""The ridge of ``ALS`` where none is given: chosen on entries that are hidden for it.

Entries of noise alone, of deviation g, in rows and columns of n and m entries, have a norm of about
g (sqrt n + sqrt m). With the ridges l2 n_i^p and l2 n_j^p the nuclear norm takes all of them away
from

    l2 = 2 t g (sqrt n + sqrt m) / 2 (n m)^(p / 2),   t = 1,

on. At p = 1/2 this hardly depends on how much is known of a row, and l2 has the unit of the data.
How much less is best depends on what there is besides noise. With g the deviation of what biases
leave, 2 t = 2, 1, 1/2, ... are tried while the error on a hidden share falls, and the least of the
parabola through three errors is taken. Biases have a ridge of their own, a number of entries that
does not grow with the count: the best of several for biases alone.

Biases alone are taken (codes are zero then) where the errors of codes, entry by entry, are not less
than theirs by one standard error; where that is within two, and there is a loss,
on more hidden shares of small data. All of it has seeds of its own and sums that do not depend on
threads, so the choice repeats. Where entries are in parts, or very many, it is made on a sample of
their rows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.stationary import RidgePoint, RidgeProblem
from eckart.complete.biases import BiasSums, balanced, ridged
from eckart.complete.factors.alternate import AlternatingState, SweepStop, alternate, start
from eckart.complete.factors.majorise import centre, touched
from eckart.complete.folding import mean_of
from eckart.complete.normalise import Normaliser, normalise
from eckart.complete.split import hidden_entries
from eckart.engines.protocol import RidgeRule
from eckart.matrix import Observed
from eckart.matrix_blocks import of_each_part, parts_of
from eckart.rng import generator
from eckart.terms import Loss
from eckart.trace import StopReason

NO_CODES = 1e20
"""Ridge, in units of the noise, under which codes are zero: only biases are left."""
DAMPING = tuple(10.0 ** np.arange(-1, 3.25, 0.5))
"""Ridges of biases that are tried, in entries: a row of so many is believed by half. Surveys want
the least, a few ratings a row more, what has no biases the most."""
FIRST, LEAST = 2.0, 2.0**-9
"""The ridge that is tried first, in units of the noise, and the least: data with a thousandth of
noise are exact for most purposes."""
LITTLE = 0.999
"""The search goes on while the error falls by more than a thousandth."""
SHARE, SMALL_SHARE, SMALL = 0.05, 0.1, 20_000
"""Share that is hidden, and that of data with fewer entries, whose twentieth is too few to choose
by."""
ENOUGH, ROUNDS, FEWEST = 1000, 3, 40
"""Hidden entries from which one round is enough, the most rounds, and the entries below which
nothing is tried."""
UNSURE = 2.0
"""Standard errors of what codes gain up to which the luck of few hidden entries decides: then more
are hidden. Of 18 tables of yes and no, 600 x 120, one had codes left out that took 3 % off.
Under squares, on 30 samples of ratings, nothing was gained."""
STEPS = 10
"""Of conjugate gradients for biases that are only compared."""
MORE = 4
"""So many times that for biases, whose fits cost next to nothing, and whose errors differ less."""
MIDDLE = 3
"""Place of the ridge of biases that is tried first: three entries."""
SWEEPS, TOL, RANK = 10, 3e-3, 32
"""Sweeps, relative decrease and largest rank of a fit that is only compared."""
LARGE = 4_000_000
"""Entries from which a sample of rows is taken."""


class ChosenRidge(NamedTuple):
    """l_i = l2 n_i^l2_power for codes, l2_bias n_i^l2_bias_power for biases; a0 of implicit
    feedback, and what popularity adds there."""

    l2: float
    l2_power: float
    l2_bias: float
    l2_bias_power: float
    unobserved_weight: float | None = None
    popularity: float | None = None

    def summary(self) -> dict[str, float]:
        """What there is, by name."""
        return {name: value for name, value in self._asdict().items() if value is not None}


class RidgeChoice(NamedTuple):
    """A ridge, why it was taken, (empty where nothing was hidden) mean losses on hidden entries: of
    the model, of biases alone, of the mean; how many; and a note for the certificate."""

    ridge: ChosenRidge
    reason: str
    held_out: dict[str, float]
    note: str = ""


class Wanted(NamedTuple):
    """What of the ridge is open: the power of codes, the ridge of biases (None: chosen; 0 with
    ``bias`` False: there are none) and its power; ``flat``: whether codes may be left out. Rank,
    sign, normalisation and loss are those of the model."""

    rank: int
    power: float
    bias: bool
    l2_bias: float | None
    bias_power: float
    nonnegative: bool
    normalise: str | None
    scale: bool
    loss: Loss | None
    flat: bool


def choose(
    x: Observed, wanted: Wanted, engine: Any, weights: np.ndarray | None = None
) -> RidgeChoice:
    """The choice for these entries (encoded, where there is a loss)."""
    whole = x
    if parts_of(x) is not None or x.nnz > LARGE:
        x, weights = sampled(x, weights)
    fewer = x.nnz < whole.nnz
    if fewer:
        # a column of the sample is known by fewer rows than it has
        wanted = wanted._replace(flat=False)
    share = SHARE if x.nnz >= SMALL else SMALL_SHARE
    number = int(np.clip(np.ceil(ENOUGH / (share * max(x.nnz, 1))), 1, ROUNDS))
    rounds = (
        [
            made
            for seed in range(number)
            if (made := _ShareRound.of(x, wanted, engine, weights, share, seed))
        ]
        if x.nnz >= FEWEST
        else []
    )
    if not rounds:
        return _untried(whole, wanted)
    bias = wanted.l2_bias or 0.0
    more = range(number, int(np.clip(np.ceil(MORE * ENOUGH / (share * x.nnz)), number, 2 * ROUNDS)))
    further = [
        made for seed in more if (made := _ShareRound.of(x, wanted, engine, weights, share, seed))
    ]
    if wanted.bias and wanted.l2_bias is None:
        bias = _damping(rounds + further, x, wanted)
    flat = [r.biases(bias) for r in rounds]
    noise = float(np.sqrt(np.average([r.noise(f) for r, f in zip(rounds, flat, strict=True)])))
    noise *= _fill(x, wanted.power)
    if not noise > 0:
        return _untried(whole, wanted)
    tried: dict[float, list[np.ndarray]] = {}

    def error(t: float, among: int = len(rounds)) -> float:
        found = tried.setdefault(t, [])
        found += [
            r.codes(ChosenRidge(float(t * noise), wanted.power, bias, wanted.bias_power))
            for r in rounds[len(found) : among]
        ]
        return _total(found[:among])

    best, step = FIRST, 2.0
    while best / 2 >= LEAST and error(best / 2, 1) < LITTLE * error(
        best, 1
    ):  # the first round says where the others look
        best /= 2
    if best / 2 >= LEAST and error(best / 2) < LITTLE * error(best):
        while best / 2 >= LEAST and error(best / 2) < LITTLE * error(best):
            best /= 2
    else:
        while best < FIRST and error(2 * best) * LITTLE <= error(best):
            best *= 2
    if best == FIRST:  # above it codes vanish
        step = np.sqrt(2)
        best = FIRST / step if error(FIRST / step) < error(FIRST) else FIRST
    t = (
        best * step ** _least(error(best / step), error(best), error(best * step))
        if best * step in tried and best / step in tried
        else best
    )
    gain = np.concatenate([a - b for a, b in zip(flat, tried[best], strict=True)])
    careful = wanted.flat and wanted.loss is not None and bool(further)
    if careful and abs(gain.mean()) <= UNSURE * _spread(gain):
        ridge = ChosenRidge(float(best * noise), wanted.power, bias, wanted.bias_power)
        gain = np.concatenate([gain, *(r.biases(bias) - r.codes(ridge) for r in further)])
    summary = {
        "entries": sum(map(len, flat)),
        "biases" if wanted.bias else "no factors": _total(flat),
        "mean": _total([r.plain for r in rounds]),
    }
    tried_words = f"{len(tried)} ridges on {len(gain):,} hidden entries"
    factor = _fill(whole, wanted.power) / _fill(x, wanted.power)
    if wanted.flat and gain.mean() <= _spread(gain):
        reason = (
            f"codes say no more than {'biases' if wanted.bias else 'what is taken out'}: tried "
            f"{tried_words}"
        )
        return RidgeChoice(
            ChosenRidge(float(NO_CODES * noise), wanted.power, bias, wanted.bias_power),
            reason,
            summary | {"model": _total(flat)},
        )
    reason = f"{t:.3g} times the noise, the least error of {tried_words}" + (
        ", of a sample of rows" if fewer else ""
    )
    return RidgeChoice(
        ChosenRidge(float(t * noise * factor), wanted.power, bias, wanted.bias_power),
        reason,
        summary | {"model": error(best)},
    )


def _untried(x: Observed, wanted: Wanted) -> RidgeChoice:
    """A ridge where nothing can be hidden: that of noise as large as the entries."""
    y = x if parts_of(x) is None else sampled(x, None)[0]
    values = y.data.astype(np.float64)
    if wanted.loss is None:
        noise, bend = float(np.std(values)) or 1.0, 1.0
    else:
        s = np.full(len(values), centre(y, wanted.loss, None))
        noise = float(np.sqrt(np.mean(wanted.loss.gradient(values, s) ** 2))) or 1.0
        bend = float(np.mean(wanted.loss.curvature(values, s)))
    bias = wanted.l2_bias if wanted.l2_bias is not None else _damping_unit(y, wanted, bend)
    ridge = ChosenRidge(
        float(noise * _fill(x, wanted.power)), wanted.power, bias, wanted.bias_power
    )
    return RidgeChoice(
        ridge, "as large as the entries' deviation: there are too few to hide some", {}
    )


def _damping(rounds: list[_ShareRound], x: Observed, wanted: Wanted) -> float:
    """The ridge of biases whose errors are least, biases alone."""
    unit = _damping_unit(x, wanted, float(np.mean([r.bend for r in rounds])))
    errors: dict[int, float] = {}

    def error(at: int) -> float:
        if not 0 <= at < len(DAMPING):
            return np.inf
        if at not in errors:
            errors[at] = _total([r.biases(DAMPING[at] * unit) for r in rounds])
        return errors[at]

    at = MIDDLE
    for way in (1, -1):
        while error(at + way) < error(at):
            at += way
    more = _least(error(at - 1), error(at), error(at + 1)) if 0 < at < len(DAMPING) - 1 else 0.0
    return float(unit * DAMPING[at] * (DAMPING[1] / DAMPING[0]) ** more)


def _damping_unit(x: Observed, wanted: Wanted, bend: float) -> float:
    """A damping of one entry as a ridge, under a loss whose parabolas are so steep, and over the
    counts that multiply it."""
    n, m = _known(x)
    return bend / (n * m) ** (wanted.bias_power / 2)


def _fill(x: Observed, power: float) -> float:
    """(sqrt n + sqrt m) / 2 (n m)^(p / 2), n and m being what is known of an entry's row and
    column."""
    n, m = _known(x)
    return float(0.5 * (np.sqrt(n) + np.sqrt(m)) / (n * m) ** (power / 2))


def _known(x: Observed) -> tuple[float, float]:
    """What an entry's row and column have on the average."""
    n, m = (
        float((c.astype(np.float64) ** 2).sum() / max(c.sum(), 1)) or 1.0
        for c in (x.row_counts(), x.column_counts())
    )
    return n, m


def _spread(gain: np.ndarray) -> float:
    """The standard error of a mean."""
    return float(gain.std(ddof=1) / np.sqrt(len(gain)))


def _total(losses: list[np.ndarray]) -> float:
    return float(np.mean(np.concatenate(losses)))


def _least(below: float, here: float, above: float) -> float:
    """Where the parabola through errors at -1, 0 and 1 is least, at most half a step away."""
    bend = below + above - 2 * here
    return float(np.clip(0.5 * (below - above) / bend, -0.5, 0.5)) if bend > 0 else 0.0


def sampled(
    x: Observed, weights: np.ndarray | None, most: int | None = None
) -> tuple[Observed, np.ndarray | None]:
    """Rows drawn with a seed of their own, about ``most`` (``LARGE``) entries in all, in memory; of
    parts the same rows as of the whole."""
    kept = generator(0).random(x.shape[0]) < (LARGE if most is None else most) / max(x.nnz, 1)
    if parts_of(x) is None:
        return _rows(x, kept), None if weights is None else weights[np.repeat(kept, x.row_counts())]
    shares = np.split(kept, np.cumsum(x.parts.lengths)[:-1])  # type: ignore[attr-defined]
    found = of_each_part(x, _rows, [(share,) for share in shares])
    indptr = np.concatenate([[0], *(np.diff(part.indptr) for part in found)]).cumsum()
    indices, data = (
        np.concatenate([getattr(part, name) for part in found]) for name in ("indices", "data")
    )
    return Observed(indptr, indices, data, x.n_columns), None


def _rows(x: Observed, kept: np.ndarray) -> Observed:
    counts = x.row_counts()
    of = np.repeat(kept, counts)
    return Observed(
        np.concatenate([[0], counts[kept]]).cumsum(), x.indices[of], x.data[of], x.n_columns
    )


class _ShareRound:
    """One hidden share: the entries that are left, placed, and where a fit to them begins."""

    def __init__(
        self,
        wanted: Wanted,
        engine: Any,
        train: Observed,
        hidden: Observed,
        weights: np.ndarray | None,
        heavy: np.ndarray | None,
    ):
        self.wanted, self.engine, self.train, self.weights = wanted, engine, train, weights
        self.norm: Normaliser | None = None
        if wanted.normalise is not None:
            self.norm, self.train = normalise(
                train, wanted.normalise, scale=wanted.scale, engine=engine
            )
            hidden = self.norm.apply(hidden)
        self.rows, self.columns, self.heavy = (
            np.repeat(np.arange(hidden.shape[0]), hidden.row_counts()),
            hidden.indices,
            heavy,
        )
        self.values = hidden.data.astype(np.float64)
        loss = wanted.loss
        if loss is None:
            self.mean = mean_of(self.train, weights) if wanted.bias else 0.0
            self.bend = 1.0
        else:
            self.mean = centre(self.train, loss, weights) if wanted.bias else 0.0
            self.bend = float(
                np.mean(loss.curvature(self.values, np.full(len(self.values), self.mean)))
            )
        middle = (
            self.mean
            if wanted.bias or wanted.normalise is not None
            else (mean_of(self.train, weights) if loss is None else 0.0)
        )
        self.plain = self._losses(np.full(len(self.values), middle), loss)
        self.placed: Any = None
        self.first_point: Any = None

    @classmethod
    def of(
        cls,
        x: Observed,
        wanted: Wanted,
        engine: Any,
        weights: np.ndarray | None,
        share: float,
        seed: int,
    ) -> _ShareRound | None:
        hidden = hidden_entries(x, share, seed)
        if not hidden.any() or hidden.all():
            return None
        own, heavy = (None, None) if weights is None else (weights[~hidden], weights[hidden])
        if heavy is not None and not (heavy.any() and own.any()):  # type: ignore[union-attr]
            return None
        return cls(wanted, engine, _entries(x, ~hidden), _entries(x, hidden), own, heavy)

    def _losses(self, s: np.ndarray, loss: Loss | None) -> np.ndarray:
        """The loss of every hidden entry at these natural parameters."""
        each = (self.values - s) ** 2 if loss is None else loss.value(self.values, s)
        return each if self.heavy is None else each * (self.heavy / self.heavy.mean())

    def biases(self, l2: float) -> np.ndarray:
        """Of biases alone."""
        if not self.wanted.bias:
            return self._losses(np.full(len(self.values), self.mean), self.wanted.loss)
        if self.wanted.loss is None and self.wanted.bias_power == 0 and self.weights is None:
            x = self.train
            rows = np.repeat(np.arange(x.shape[0]), x.row_counts())
            sums = BiasSums.of(rows, x.indices, x.data - self.mean, x.shape)  # type: ignore[arg-type]
            b, c, _ = balanced(
                sums, ridged(x.row_counts(), l2, False), ridged(x.column_counts(), l2, False), STEPS
            )
            return self._losses(self.mean + b[self.rows] + c[self.columns], None)
        return self.codes(ChosenRidge(NO_CODES, self.wanted.power, l2, self.wanted.bias_power), 1)

    def noise(self, flat: np.ndarray) -> float:
        """The mean square of the slope of the loss at biases alone."""
        loss = self.wanted.loss
        if loss is None:
            return float(flat.mean())
        return float(np.mean(loss.gradient(self.values, np.full(len(self.values), self.mean)) ** 2))

    def codes(self, ridge: ChosenRidge, rank: int | None = None) -> np.ndarray:
        """Of a fit under this ridge."""
        wanted, engine = self.wanted, self.engine
        rule = RidgeRule(
            ridge.l2,
            ridge.l2_power,
            wanted.bias,
            ridge.l2_bias,
            wanted.nonnegative,
            bias_power=ridge.l2_bias_power,
        )
        if self.placed is None:
            self.placed = engine.put(self.train, entry_weights=self.weights)
        problem = RidgeProblem.of(engine, self.placed, rule)
        if rank is not None or self.first_point is None:
            near = (
                problem if wanted.loss is None else touched(problem, wanted.loss, self.mean, engine)
            )
            size = (
                float(np.std(self.train.data))
                if wanted.loss is None
                else wanted.loss.unit(self.train.data, np.ones(self.train.nnz))
            )
            first_point = start(
                near,
                min(wanted.rank, RANK) if rank is None else rank,
                self.mean,
                engine,
                generator(0),
                size or 1.0,
            )
            if rank is None:
                self.first_point = first_point
        else:
            first_point = self.first_point
        point, right = first_point
        state = AlternatingState(point._replace(loss=wanted.loss, right=engine.take(right)))
        state, trace, _ = alternate(problem, state, SweepStop("decrease", TOL, SWEEPS), engine)
        if trace.reason is StopReason.INTERRUPTED:
            raise KeyboardInterrupt
        return self._losses(self._at(state.point), state.point.loss)

    def _at(self, p: RidgePoint) -> np.ndarray:
        get = partial(_host, self.engine)
        u, v, b, c = get(p.left), get(p.right), get(p.row_bias), get(p.column_bias)
        s = self.mean + np.einsum("ij,ij->i", u[self.rows], v[self.columns])
        return s + (0.0 if b is None else b[self.rows] + c[self.columns])


def _host(engine: Any, a: Any) -> Any:
    return None if a is None else np.asarray(engine.get(a), np.float64)


def _entries(x: Observed, kept: np.ndarray) -> Observed:
    ends = np.concatenate([[0], np.cumsum(kept)])
    return replace(x, indptr=ends[x.indptr], indices=x.indices[kept], data=x.data[kept])
