"""Which solver, and why: flops and bytes estimated from shape, sparsity and k. The choice and its
reason go to ``fit_.plan``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.errors import InputError, invalid, written
from eckart.matrix import Counts, Dense, Matrix, Observed

SOLVERS = ("eigh", "svd", "power", "randomized", "lanczos", "gradient")
ALIASES = {"full": "svd", "covariance_eigh": "eigh", "arpack": "lanczos"}
SMALL = 500
"""Rows and columns up to which a full SVD takes a tenth of a second at the most."""
GRADIENT_SECONDS = 0.03
"""Of Python itself in some two thousand steps of descent, whatever the size of the data, at the
speed that ``FLOPS`` stands for."""
POWER_STEPS = 300
"""Of the power method for a component: from a few where it stands out to thousands in noise (on
tables of measurements 60 to 1,700)."""
STATISTIC_COLUMNS = 2048
"""Widest data whose covariance is formed for a stream; wider streams are sketched."""
FLOPS = 1.0e11
"""Assumed speed of matrix products, for estimates only."""
BYTES = 1.0e10
"""Assumed speed of reading memory, for estimates only."""
BLOCK = 2**22
"""Assumed bytes in a block of rows."""
EXACT_SECONDS = 0.2
"""An exact solver is preferred to an iterative one up to this estimate."""


@dataclass(frozen=True)
class Plan:
    """A solver with its reason and the estimated cost in passes, seconds and bytes beyond the
    data."""

    solver: str
    reason: str
    passes: int
    seconds: float
    memory: float


def validate_components(k: Any, rows: int | None, n: int) -> None:
    """n_components is an int from 0 to min(rows, columns), a share in (0, 1), "auto", "mle" or
    None."""
    if k is None or (isinstance(k, str) and k in ("auto", "mle")):
        return
    if isinstance(k, bool) or not isinstance(k, (int, float, np.integer, np.floating)):
        raise invalid("n_components", k, "an int, a share between 0 and 1, 'auto', 'mle' or None")
    if isinstance(k, (int, np.integer)):
        most = n if rows is None else min(rows, n)
        if not 0 <= k <= most:
            where = f"0 to {most} for data of {rows if rows is not None else 'unknown'} rows"
            error = invalid(
                "n_components", int(k), f"{where} and {n} columns", "lower it" if k > most else ""
            )
            # what scikit-learn says of the same flaw, for programs that look for it
            same = (
                f"n_components={written(k)} invalid for n_features={n}, need more rows than columns for "
                "IncrementalPCA processing"
                if rows is None
                else f"n_components={written(k)} must be between 0 and min(n_samples, n_features)={most} with "
                "svd_solver='full'"
            )
            raise InputError(f"{error} ({same}.)", code=error.code)
    elif not 0 < k < 1:
        raise invalid("n_components", float(k), "a share between 0 and 1, or an int")


def choose(x: Matrix, k: Any, solver: str) -> Plan:
    """The plan for data x: the named solver, or the cheapest that fits."""
    if isinstance(x, Observed):
        return em_plan(x, k, solver)
    name, solver = solver, ALIASES.get(solver, solver)
    if isinstance(k, str) and k == "mle" and solver in ("lanczos", "randomized"):
        raise InputError(
            f"n_components='mle' cannot be a string with svd_solver={name!r}: it needs all "
            "eigenvalues; use svd_solver='eigh' or 'svd'",
            code="invalid.n_components",
        )
    if solver not in (*SOLVERS, "auto"):
        raise invalid("svd_solver", solver, f"'auto', {', '.join(map(repr, (*SOLVERS, *ALIASES)))}")
    estimates = costs(x, k)
    if solver != "auto":
        return Plan(solver, "asked for by name", *estimates[solver])
    name, reason = _automatic(x, k, estimates)
    return Plan(name, reason, *estimates[name])


def em_plan(x: Any, k: Any, solver: str = "auto") -> Plan:
    """The one plan for data with gaps, placed or not; a solver that was asked for by name cannot be
    followed, which the reason says."""
    aside = "" if solver == "auto" else f"; {solver} was asked for, which takes complete rows"
    width = _width(k, x)
    seconds, memory = 100 * x.nnz * width**2 / FLOPS * 20, x.shape[1] * 8.0 * (width + 1) ** 2
    return Plan(
        "em",
        f"entries are missing: maximum likelihood on the observed ones{aside}",
        100,
        seconds,
        memory,
    )


def _width(k: Any, x: Any) -> int:
    n = x.shape[1]
    rows = x.shape[0] or n
    return (
        int(k) if isinstance(k, (int, np.integer)) and not isinstance(k, bool) else min(rows, n, 64)
    )


def costs(x: Matrix, k: Any) -> dict[str, tuple[int, float, float]]:
    """(passes, seconds, bytes) of each solver; rows of a stream of unknown length count as a
    million."""
    if isinstance(x, Observed):
        plan = em_plan(x, k)
        return {"em": (plan.passes, plan.seconds, plan.memory)}
    rows = x.shape[0] if x.shape[0] is not None else 1_000_000
    n, size = x.shape[1], x.dtype.itemsize
    width = max(1, _width(k, x))
    stored = x.nnz if isinstance(x, Counts) else rows * n
    read = stored * (size + (4 if isinstance(x, Counts) else 0)) / BYTES
    short = rows < n
    side = min(rows, n)
    products = 4.0 * stored * (6 * max(width, 8)) / FLOPS * (3 if isinstance(x, Counts) else 1)
    block = 4.0 * max(BLOCK, 128 * n * size)
    most = (
        24.0 * side**2 + 8.0 * rows * n * size if short else 72.0 * side**2 + block
    )  # few rows: no array has more entries than they
    gram = (1, read + rows * n * side / FLOPS * 0.7 + 4 * side**3 / FLOPS, most)
    krylov = (8, 8 * read + products, n * size * (9.0 * width) + block)
    return {
        "eigh": gram,
        "svd": (1, read + 6.0 * rows * n * side / FLOPS, rows * n * size * 2.0 + side * side * 8.0),
        "randomized": krylov,
        "lanczos": (2 * width + 20, (2 * width + 20) * read * 2, n * size * 4.0 * width + block),
        "power": (1, gram[1] + POWER_STEPS * width * 2.0 * n * n / FLOPS, gram[2])
        if n <= STATISTIC_COLUMNS and not short
        else (100 * width, 100 * width * read * 2, n * size * 2.0 * width + block),
        "gradient": (1, gram[1] + GRADIENT_SECONDS + 2000 * 4.0 * n * n * width / FLOPS, gram[2]),
    }


def _automatic(
    x: Dense | Counts, k: Any, costs: dict[str, tuple[int, float, float]]
) -> tuple[str, str]:
    rows, n = x.shape
    stream = isinstance(x, Dense) and not x.in_memory and not getattr(x.values, "at_hand", False)
    shape = f"{'unknown' if rows is None else rows} x {n}"
    if stream:
        if n <= STATISTIC_COLUMNS:
            return "eigh", (
                f"{shape} as row blocks: one pass, the {n} x {n} covariance is a "
                "sufficient statistic"
            )
        return "randomized", f"{shape} as row blocks, too wide for its covariance"
    assert rows is not None
    many = not isinstance(k, (int, np.integer)) or 2 * int(k) > min(rows, n)
    if isinstance(x, Dense) and x.in_memory and max(rows, n) <= SMALL:
        return "svd", f"{shape} is small: full decomposition, no tolerance needed"
    if isinstance(k, (int, np.integer)) and k == 0:
        return (
            "eigh" if n <= STATISTIC_COLUMNS else "randomized",
            "no component asked for: mean and variance only",
        )
    side = min(rows, n)
    if many and side <= 4 * STATISTIC_COLUMNS:
        return "eigh", (
            f"{shape} with many components or k open: all eigenvalues of the {side} x {side} side"
        )
    if side <= STATISTIC_COLUMNS and costs["eigh"][1] <= max(costs["randomized"][1], EXACT_SECONDS):
        return (
            "eigh",
            f"{shape}: one pass and a {side} x {side} eigenproblem, exact, at little cost",
        )
    return "randomized", (
        f"{shape}: block Krylov, about {costs['randomized'][0]} passes, no {side} x {side} matrix"
    )


def require_memory(plan: Plan, available: float) -> None:
    """Refuse before allocating what cannot fit."""
    if plan.memory > available:
        raise InputError(
            f"solver {plan.solver!r} needs about {plan.memory / 2**30:.1f} GiB beyond "
            f"the data, {available / 2**30:.1f} GiB are "
            "available; choose svd_solver='randomized' or fewer components"
        )


def measured_speed() -> float:
    """Speed of this machine's matrix product in units of FLOPS: the fastest of six products of
    milliseconds, since others may have been interrupted."""
    a, seconds = np.ones((1024, 512), np.float32), []
    for _ in range(6):  # the first of them wakes the threads
        begin = time.perf_counter()
        a.T @ a
        seconds.append(time.perf_counter() - begin)
    return 1024 * 512**2 / min(seconds) / FLOPS
