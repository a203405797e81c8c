"""How long a fit will take: the command's own work, done on a few rows of the data and on twice as
many, until the time can be read off.

With t(s) the time for s rows, T(N) = t(s) + (t(s) - t(s / 2)) (N - s) / (s / 2): what does not grow
with the rows is counted once. The first fit of a process takes longer than the next of the same
size: packages and compiled kernels are loaded. A run has to wait for that too, so it is part of the
answer. Fits are compared by their processor seconds, which other programs on the machine hardly
change, and then said as what a clock would show at the same pace (of work that other processes do:
by the clock). Kernels that had to be compiled are there for the run itself and are counted apart. No constant
of any machine is needed.
"""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from eckart.cli.shell import Shell, lasting
from eckart.clusters.client import Traffic, blocks_of, counted
from eckart.errors import InputError
from eckart.matrix import Counts, Dense, Observed

FIRST_ROWS = 128
"""Rows of the first fit: enough for every method to run, few enough to cost nothing."""
SHORT_SECONDS, LONG_SECONDS = 0.4, 2.0
"""A fit below the first may be made of overheads, and does not tell the time of more rows; one
above the second is long enough to be the last."""
AGAIN_SECONDS = 1.0
"""A fit below this is timed twice, the least counting: loading numba alone takes half a second or
more."""
PART = 1 / 8
"""Share of the rows from which a fit that is not short tells the time of all of them: what grows
slower than the rows has shown itself by then."""


def part_of(x: Any, rows: int) -> Any:
    """Some rows of the data, evenly spaced (of a stream and of text: the first), as the same kind
    of matrix."""
    if hasattr(x, "pointers"):  # sentences
        end = x.pointers[rows]
        return replace(x, ids=x.ids[:end], pointers=x.pointers[: rows + 1])
    if isinstance(x, Dense) and not x.in_memory:
        return Dense(np.asarray(next(x.stream.blocks(rows))), None, x.columns)
    at = np.unique(np.linspace(0, x.shape[0] - 1, rows).astype(int))
    if hasattr(x, "column_names"):  # a table of columns of several kinds
        return x.take(at)
    if isinstance(x, Dense):
        return Dense(np.asarray(x.array[at]), None if x.rows is None else x.rows[at], x.columns)
    kind = Observed if isinstance(x, Observed) else Counts
    return kind.from_scipy(x.to_scipy()[at], None if x.rows is None else x.rows[at], x.columns)


def estimate(x: Any, work: Callable[[Any], Any]) -> dict[str, Any]:
    """Seconds that ``work`` would take on all rows, those of compiling, and the rows it was
    measured on."""
    total = len(x) if hasattr(x, "pointers") else x.shape[0]
    if total is None:
        raise InputError(
            "the number of rows of this file is not known before it is read; there is "
            "no plan for it"
        )
    rows, times, sent = min(FIRST_ROWS, total), dict[int, np.ndarray](), {}
    begin, known = time.perf_counter(), set(sys.modules)
    from numba.core.event import TimingListener, install_listener

    imported, compiled = time.perf_counter() - begin, TimingListener()
    begin = time.perf_counter()
    with (
        install_listener("numba:compile", compiled),
        contextlib.suppress(InputError),
    ):  # too few rows for some methods: try more
        work(part_of(x, rows))
    first = time.perf_counter() - begin
    compiling = compiled.duration if compiled.done else 0.0
    later = 0.0  # what fits of more rows load, which have other ways
    while True:
        with contextlib.suppress(InputError), counted(total / rows) as traffic:
            before = set(sys.modules)
            times[rows], extra = _timed(x, rows, work, traffic)
            sent[rows] = traffic
            later += extra if set(sys.modules) - before else 0.0
        long = float(times[rows][0]) if rows in times else 0.0
        if rows >= total or (
            len(times) > 1
            and (long > LONG_SECONDS or (long > SHORT_SECONDS and rows >= PART * total))
        ):
            break
        rows = min(2 * rows, total)
    if not times:
        work(x)  # raises what every part raised
    loading = max(0.0, first - compiling - float(next(iter(times.values()))[0])) + later
    loading += imported if _has_kernels(set(sys.modules) - known) else 0.0
    (a, b) = (list(times)[-2:] * 2)[-2:] if len(times) > 1 else (0, list(times)[-1])

    def at_all(low: float, high: float) -> float:
        return high + max(0.0, high - low) / max(1, b - a) * (total - b)

    wall, own = np.sum(list(times.values()), axis=0)
    elsewhere = sent[b].passes or own < 0.1 * wall
    spent = {n: float(t[0] if elsewhere else t[1] * wall / own) for n, t in times.items()}
    seconds = loading + at_all(spent.get(a, 0.0), spent[b])
    found = {
        "seconds": seconds,
        "compiling": compiling,
        "loading": loading,
        "measured_rows": b,
        "rows": total,
    }
    if not sent[b].passes:
        return found | ({"passes": 0, "network_bytes": 0.0} if sent[b].stayed else {})
    small = sent.get(a, Traffic())
    return found | _on_cluster(
        x,
        sent[b].passes,
        *(
            at_all(getattr(small, name), getattr(sent[b], name))
            for name in ("moved", "shared", "held")
        ),
    )


def _has_kernels(modules: set[str]) -> bool:
    """Whether one of these modules holds a kernel, so that a run by itself would have had to load
    numba for it."""
    from numba.core.dispatcher import Dispatcher

    return any(
        isinstance(thing, Dispatcher)
        for name in modules
        if name.startswith("eckart.")
        for thing in vars(sys.modules[name]).values()
    )


def _on_cluster(x: Any, passes: int, moved: float, shared: float, held: float) -> dict[str, Any]:
    """Passes over the data, bytes through the network, and memory: of a worker, which holds a block
    three times over (as it came, as it is placed, and what is made of it) beside what all blocks
    share; and of this process, which holds the data and the rows of a pass, old and new."""
    stored = _stored(x)
    in_file = isinstance(x, Dense) and isinstance(x.values, np.memmap)
    block = stored / blocks_of(stored, in_file)
    here = 2 * held + shared + (stored if not isinstance(x, Dense) or x.in_memory else 0.0)
    return {
        "passes": passes,
        "network_bytes": moved,
        "worker_bytes": 3 * block + 2 * shared,
        "client_bytes": here,
    }


def _stored(x: Any) -> float:
    """Bytes of the data: rows, entries, or (of sentences) the numbers of words."""
    if not isinstance(x, (Dense, Observed, Counts)):
        return float(x.ids.nbytes + x.pointers.nbytes)
    size = x.dtype.itemsize
    rows, columns = x.shape
    assert rows is not None  # ``estimate`` has refused a stream of unknown length
    return float(rows * columns * size if isinstance(x, Dense) else x.nnz * (size + 4) + 8 * rows)


def _timed(
    x: Any, rows: int, work: Callable[[Any], Any], traffic: Traffic
) -> tuple[np.ndarray, float]:
    """Seconds by the clock and of the processors of a fit of so many rows, and by how many more its
    first run took, where it was short and run again."""
    part, seconds = part_of(x, rows), list[np.ndarray]()
    while not seconds or (len(seconds) < 2 and seconds[0][0] <= AGAIN_SECONDS):
        vars(traffic).update(vars(Traffic(traffic.times)))  # of one fit, however often it is timed
        begin = np.array([time.perf_counter(), time.process_time()])
        work(part)
        seconds.append(np.array([time.perf_counter(), time.process_time()]) - begin)
    least = np.min(seconds, axis=0)
    return least, float(seconds[0][0] - least[0])


def tell_plan(
    shell: Shell, x: Any, work: Callable[[Any], Any], by: Callable[..., dict[str, Any]] = estimate
) -> dict[str, Any]:
    """The estimate, printed; ``by`` is another way to it."""
    # a part of the sweeps stops early, of course
    with shell.phase("measuring a part of the work"), warnings.catch_warnings():
        from sklearn.exceptions import ConvergenceWarning

        warnings.simplefilter("ignore", ConvergenceWarning)
        found = by(x, work)
    part = (
        "all"
        if found["measured_rows"] == found["rows"]
        else f"{found['measured_rows']:,} of {found['rows']:,}"
    )
    shell.say("estimate", f"{lasting(found['seconds'])} for the fit, measured on {part} rows")
    loading = found.get("loading", 0.0)
    if loading > found["seconds"] / 2:  # the times of other solvers beside it are without it
        shell.say("", f"{lasting(loading)} of it loads packages and kernels, once in a process")
    if found["compiling"] > 0:
        shell.say(
            "",
            f"kernels were compiled for it in {lasting(found['compiling'])}, once on this machine",
        )
    if found.get("passes") == 0:
        shell.say("cluster", "not used: the data are one block, which stays in this process")
    elif "passes" in found:
        shell.say(
            "cluster",
            f"{found['passes']:,} passes over the data, "
            f"{_bytes(found['network_bytes'])} through the network",
        )
        shell.say(
            "",
            f"about {_bytes(found['worker_bytes'])} of memory in a worker and "
            f"{_bytes(found['client_bytes'])} here, beside Python itself",
        )
    shell.answer["plan"] = found
    return found


def _bytes(size: float) -> str:
    """A size in words.

    >>> _bytes(3.2e6), _bytes(2.5e9)
    ('3.2 MB', '2.5 GB')
    """
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"
