"""eckart plan."""

from __future__ import annotations

from typing import Annotated, Any, cast

import numpy as np
import typer

from eckart.cli import options
from eckart.cli.cluster import ClusterOptions
from eckart.cli.options import CellOptions, Engine, TableOptions, option
from eckart.cli.shell import Shell, lasting
from eckart.matrix import Dense, Observed

FIXED = 0.5
"""Seconds of a fit, at most, that belong to no pass over the data (checks, the certificate, Python
itself): they are not multiplied for other solvers."""


def _with_gaps(matrix: Any) -> Any:
    """A table in memory with empty cells as the partly observed matrix that a fit takes it for."""
    if isinstance(matrix, Dense) and matrix.in_memory and np.isnan(np.asarray(matrix.values)).any():
        return Observed.from_nan(np.asarray(matrix.values), matrix.rows, matrix.columns)
    return matrix


@options.spread(ClusterOptions)
def plan(
    file: Annotated[str, typer.Argument(help="The data.")],
    *,
    components: Annotated[
        str, option("--components", "-k", help="How many: a number, a share of variance, or auto.")
    ] = "auto",
    table: TableOptions,
    written: CellOptions,
    solver: Annotated[
        str, option(help="Plan for this solver instead of the automatic choice.")
    ] = "auto",
    engine: Engine = "auto",
    shell: Shell,
) -> None:
    """Estimate passes, time and memory of a reduction before running it, and say what would be
    chosen and why.

    The time is measured on a part of the rows. With the name of another verb before its own words,
    that verb is planned (the same as its --plan). With --workers or --cluster the plan also says
    how many passes over the data there are, what goes through the network, and the memory of a
    worker and of this process.

    Examples:

        eckart plan data.npy --components 32

        eckart plan complete ratings.csv --rows user --columns movie --values rating --workers 4
    """
    from eckart.cli.estimate import tell_plan
    from eckart.cli.reading import local, reading_of
    from eckart.cli.reduce import _components
    from eckart.cli.suspicions import refuse_clicks, refuse_triples
    from eckart.engines import available_memory
    from eckart.reduce.pca import PCA
    from eckart.reduce.plan import choose, costs, measured_speed, validate_components

    with shell.phase(f"reading {file}"):
        reading, file = reading_of(table, written, shell=shell), local(file)
        refuse_triples(reading, file, by_name=True, verb="plan complete")
        refuse_clicks(reading, file, verb="plan complete")
        matrix = _with_gaps(reading.table(file, shell).matrix)
    k = _components(components)
    validate_components(k, matrix.shape[0], matrix.shape[1])
    chosen = choose(matrix, k, solver)
    rows = "unknown" if matrix.shape[0] is None else f"{matrix.shape[0]:,}"
    shell.say(
        "data",
        f"{rows} rows x {matrix.shape[1]:,} columns, {matrix.dtype.name}, "
        f"{type(matrix).__name__.lower()}",
    )
    shell.say("chosen", f"{chosen.solver}: {chosen.reason}")
    speed, overhead = measured_speed(), 0.0
    if matrix.shape[0] is not None:
        found = tell_plan(
            shell, matrix, PCA(k, svd_solver=cast(Any, solver), random_state=0, engine=engine).fit
        )
        measured = found["seconds"] - found["loading"]
        overhead = min(max(0.0, measured - chosen.seconds / speed), FIXED)
        speed = chosen.seconds / max(
            measured - overhead, 1e-6
        )  # the estimates beside it in the unit of what was measured
    shell.say(
        "",
        f"{chosen.passes} passes, {chosen.memory / 2**20:,.0f} MiB beyond the data "
        f"({available_memory() / 2**30:.1f} GiB available)",
    )
    others = [
        (name, passes, seconds / speed + overhead, memory)
        for name, (passes, seconds, memory) in costs(matrix, k).items()
    ]
    shell.answer |= {
        "solver": chosen.solver,
        "reason": chosen.reason,
        "solvers": {n: {"passes": p, "seconds": s, "bytes": m} for n, p, s, m in others},
    }
    if not shell.json:
        typer.echo("solver      passes     time        memory")
        for name, passes, seconds, memory in others:
            typer.echo(f"{name:<11} {passes:<10} {lasting(seconds):<11} {memory / 2**20:,.0f} MiB")
