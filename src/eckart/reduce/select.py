"""How many components? One table, four answers, and whether they agree.

held_out       entries hidden at random and predicted by probabilistic PCA fitted to the rest; the k
of least error (within one standard error, the smallest).
               Hiding whole rows would be invalid: a row's reconstruction has seen the row.
gavish_donoho  singular values above the optimal hard threshold for noise of unknown level.
parallel       eigenvalues above the 95 % quantile of those of data whose columns are shuffled
independently (Horn 1965), deflated one by one.
share          the smallest k that captures a given share of the variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.arguments import held
from eckart.engines import engine_named
from eckart.engines.protocol import Engine
from eckart.errors import invalid
from eckart.io.models.checkpoint import Checkpoint, Memory, generator_at, resumed
from eckart.io.read import read
from eckart.matrix import Counts, Dense, Matrix, Observed, squarable
from eckart.reduce import missing as gaps
from eckart.reduce import rank
from eckart.reduce.encode import reusable
from eckart.reduce.solve import SpectralOptions, solve
from eckart.trace import Watcher, progress

METHODS = ("held_out", "gavish_donoho", "parallel", "share")
MOST_ROWS, MOST_COLUMNS = 2000, 1000
"""Of the data that are fitted again and again for ``held_out`` and ``parallel``: each fit takes a
fraction of a second then."""


@dataclass(frozen=True, eq=False)
class Selection:
    """``table``: one row for each k, a column for each quantity measured; ``choices``: k by method;
    ``notes``: what was left out and why."""

    table: dict[str, list[float]]
    choices: dict[str, int]
    notes: tuple[str, ...] = ()

    @property
    def agree(self) -> bool:
        """Whether all methods choose the same k."""
        return len(set(self.choices.values())) <= 1

    def __str__(self) -> str:
        names = list(self.table)
        lines = ["  ".join(f"{name:>22}" for name in names)]
        for i in range(len(self.table["k"])):
            cells = [self.table[name][i] for name in names]
            lines.append(
                "  ".join(f"{'' if cell != cell else format(cell, '.5g'):>22}" for cell in cells)
            )
        lines.append("chosen: " + ", ".join(f"{method} {k}" for method, k in self.choices.items()))
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


MOST_SHUFFLES = 10_000
"""Shuffled copies at the most: a quantile of 95 % is known to a hundredth of it long before."""


@held
def select_components(
    X: Any,
    max_components: int | None = None,
    *,
    methods: tuple[str, ...] = METHODS,
    share: float = 0.9,
    held_out: float = 0.1,
    shuffles: int = 20,
    random_state: Any = None,
    engine: Any = "auto",
    n_threads: int | None = None,
    verbose: bool = False,
    checkpoint: Any = None,
) -> Selection:
    """A table of k by held-out entries, Gavish-Donoho, parallel analysis and share of variance, and
    what each would choose.

    Parameters
    ----------
    X : anything that ``eckart.read`` takes; NaN entries stay missing
    max_components : largest k tried for held-out entries; by default up to 20
    methods : which of "held_out", "gavish_donoho", "parallel", "share"
    share : for the method of that name
    held_out : share of the entries that is hidden
    shuffles : shuffled copies for parallel analysis
    checkpoint : file in which ranks that were judged are kept; the same call resumes from it after
        a crash, with the same bits

    >>> rng = np.random.default_rng(0)
    >>> basis = np.linalg.qr(rng.standard_normal((12, 3)))[0]
    >>> x = 3 * rng.standard_normal((300, 3)) @ basis.T + 0.7 * rng.standard_normal((300, 12))
    >>> s = select_components(x, random_state=0)
    >>> s.choices["held_out"], s.choices["gavish_donoho"], s.choices["parallel"]
    (3, 3, 3)
    """
    for method in methods:
        if method not in METHODS:
            raise invalid("methods", method, f"names among {', '.join(METHODS)}")
    for name, value in (("share", share), ("held_out", held_out)):
        if not 0 < value < 1:
            raise invalid(name, value, "a share between 0 and 1")
    if max_components is not None and max_components < 1:
        raise invalid("max_components", max_components, "None or an int >= 1")
    if not 1 <= shuffles <= MOST_SHUFFLES:
        raise invalid("shuffles", shuffles, f"an int from 1 to {MOST_SHUFFLES}")
    matrix = squarable(reusable(read(X)))
    about = {
        "most": max_components,
        "methods": methods,
        "share": share,
        "held_out": held_out,
        "shuffles": shuffles,
    }
    about |= {"random_state": random_state, "engine": engine}
    file = Checkpoint.of_call(checkpoint, "select_components", matrix, about)
    engine, notes = engine_named(engine, n_threads), list[str]()
    with progress(verbose) as watch, resumed(file, random_state) as (memory, rng):
        sample = _sample(matrix, rng, notes)
        wanted = SpectralOptions(None if sample is not None else min(64, *_known(matrix)))
        fit = solve(matrix, wanted, None, engine=engine, rng=rng, watch=watch)
        basis = fit.factors
        values = basis.scatter / basis.weight
        most = min(max_components or 20, basis.k, basis.n - 1)
        ks = list(range(most + 1))
        cumulative = np.concatenate([[0.0], np.cumsum(basis.scatter)]) / (basis.total or 1.0)
        table: dict[str, list[float]] = {
            "k": [float(k) for k in ks],
            "eigenvalue": [float("nan")] + [float(v) for v in values[:most]],
            "share of variance": [float(c) for c in cumulative[: most + 1]],
        }
        choices: dict[str, int] = {}
        if "share" in methods:
            choices["share"] = rank.by_share(values, basis.total / basis.weight, share)
        if "gavish_donoho" in methods:
            whole = basis.k >= min(basis.rows, basis.n)
            choices["gavish_donoho"] = rank.gavish_donoho(
                values, basis.weight, basis.n, None if whole else basis.total / basis.weight
            )
        if sample is None:
            notes.append(
                f"held_out and parallel are left out: {basis.n} columns, at most "
                f"{MOST_COLUMNS} are tried"
            )
        else:
            found = memory.last()
            if "parallel" in methods:
                found = found or _parallel(sample, most, shuffles, rng, watch)
                thresholds, choices["parallel"] = found
                shown = [float("nan"), *thresholds, *([float("nan")] * most)]
                table["shuffled eigenvalue"] = shown[: most + 1]
            if "held_out" in methods:
                judged = memory.inner(found)
                errors, choices["held_out"] = _held_out(
                    sample, ks, held_out, engine, rng, watch, judged
                )
                table["held-out error"] = errors
    memory.end()
    return Selection(table, {m: choices[m] for m in METHODS if m in choices}, tuple(notes))


def _known(matrix: Matrix) -> tuple[int, int]:
    return matrix.shape[0] or matrix.shape[1], matrix.shape[1]


def _sample(matrix: Matrix, rng: np.random.Generator, notes: list[str]) -> np.ndarray | None:
    """At most MOST_ROWS rows with NaN for gaps; None where the data are too wide."""
    if matrix.shape[1] > MOST_COLUMNS:
        return None
    if isinstance(matrix, Dense) and not matrix.in_memory:
        notes.append(f"held_out and parallel use the first {MOST_ROWS} rows of the stream")
        return np.asarray(next(iter(matrix.stream.blocks(MOST_ROWS))), np.float64)
    rows = matrix.shape[0]
    assert rows is not None
    chosen = np.arange(rows)
    if rows > MOST_ROWS:
        notes.append(f"held_out and parallel use {MOST_ROWS} rows drawn from {rows}")
        chosen = np.sort(rng.choice(rows, MOST_ROWS, replace=False))
    if isinstance(matrix, Counts):
        return matrix.to_scipy()[chosen].toarray().astype(np.float64)
    if isinstance(matrix, Observed):
        out = np.full((len(chosen), matrix.shape[1]), np.nan)
        for i, row in enumerate(chosen):
            part = slice(matrix.indptr[row], matrix.indptr[row + 1])
            out[i, matrix.indices[part]] = matrix.data[part]
        return out
    return np.asarray(matrix.array[chosen], np.float64)


def _parallel(
    x: np.ndarray, most: int, shuffles: int, rng: np.random.Generator, watch: Watcher
) -> tuple[list[float], int]:
    """Deflated parallel analysis: thresholds for components 1, 2, ... and how many real ones lie
    above, counted from the first.

    After each accepted component the data are deflated before they are shuffled again; otherwise a
    strong component raises the bar for the weaker ones behind it (Dobriban and Owen 2019).
    """
    mean = np.nanmean(x, axis=0)
    rest = np.where(np.isnan(x), mean, x) - mean
    thresholds: list[float] = []
    rows, n = x.shape
    for k in range(min(most, rows - 1)):
        values, vectors = _largest(rest)
        drawn = [_largest(rng.permuted(rest, axis=0))[0] for _ in range(shuffles)]
        # of 20 draws and a 21st of their kind one in twenty lies above this quantile, two of 21
        # above the interpolated one
        threshold = float(np.quantile(drawn, 0.95, method="weibull"))
        # what is left lives in n - k dimensions, shuffling spreads it over n
        thresholds.append(threshold * n / (n - k) * rows / (rows - k))
        watch("parallel analysis", k + 1, most)
        if values <= thresholds[-1]:
            return thresholds, k
        rest = rest - np.outer(rest @ vectors, vectors)
    return thresholds, len(thresholds)


def _largest(x: np.ndarray) -> tuple[float, np.ndarray]:
    """The largest eigenvalue of the covariance of centered rows, and its eigenvector."""
    import scipy.linalg as sl

    n = x.shape[1]
    values, vectors = sl.eigh(x.T @ x / len(x), subset_by_index=(n - 1, n - 1), check_finite=False)
    return float(values[0]), vectors[:, 0]


def _held_out(
    x: np.ndarray,
    ks: list[int],
    share: float,
    engine: Engine,
    rng: np.random.Generator,
    watch: Watcher,
    memory: Memory,
) -> tuple[list[float], int]:
    """Root mean squared error of hidden entries for each k."""
    kept, drawn = memory.last() or {}, rng.bit_generator.state
    errors, spread, drawn = kept.get("errors", []), kept.get("spread", []), kept.get("drawn", drawn)
    seen = ~np.isnan(x)
    hidden = seen & ((generator_at(rng, drawn) if kept else rng).random(x.shape) < share)
    for j in np.flatnonzero((seen & ~hidden).sum(axis=0) == 0):
        hidden[:, j] = False
    if not hidden.any():
        raise invalid(
            "held_out",
            share,
            f"a share that hides some of the {int(seen.sum())} entries of X",
            "raise it, or name other methods",
        )
    training = engine.put(Observed.from_nan(np.where(hidden, np.nan, x)))
    truth = x[hidden]
    for k in ks[len(errors) :]:
        memory.offer({"drawn": drawn, "errors": errors, "spread": spread})
        g, _ = gaps.fit_gaussian(
            training, k, float(len(x)), engine=engine, rng=rng, tol=1e-5, max_iter=200
        )
        codes = engine.get(engine.gap_codes(training, g.w, g.mu, g.s2).codes)
        square = (truth - (codes @ g.w.T + g.mu)[hidden]) ** 2
        errors.append(float(np.sqrt(square.mean())))
        spread.append(float(square.std() / np.sqrt(len(square))))
        watch("held-out entries", k, ks[-1])
    best = int(np.argmin(errors))
    limit = np.sqrt(errors[best] ** 2 + spread[best])
    return errors, next(k for k, e in zip(ks, errors) if e <= limit)
