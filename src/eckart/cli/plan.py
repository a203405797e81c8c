"""eckart plan."""

from __future__ import annotations

from typing import Annotated

import typer

from eckart.cli import options
from eckart.cli.options import CellOptions, TableOptions, option
from eckart.cli.shell import Shell, lasting


@options.spread
def plan(
    file: Annotated[str, typer.Argument(help="The data.")],
    *,
    components: Annotated[
        str, option("--components", "-k", help="How many: a number, a share of variance, or auto.")
    ] = "auto",
    table: TableOptions,
    written: CellOptions,
    solver: Annotated[str, option(help="Plan for this solver instead of the automatic choice.")] = "auto",
    shell: Shell,
) -> None:
    """Estimate passes, time and memory of a reduction before running it, and say what would be chosen and why.

    Example:

        eckart plan data.npy --components 32
    """
    from eckart.cli.reading import reading_of
    from eckart.cli.reduce import _components
    from eckart.engines import available_memory
    from eckart.reduce.plan import choose, costs, measured_speed, validate_components

    matrix = reading_of(table, written, shell=shell).table(file, shell).matrix
    k = _components(components)
    validate_components(k, matrix.shape[0], matrix.shape[1])
    speed = measured_speed()
    chosen = choose(matrix, k, solver)
    rows = "unknown" if matrix.shape[0] is None else f"{matrix.shape[0]:,}"
    kind = f"{matrix.dtype.name}, {type(matrix).__name__.lower()}"
    shell.say("data", f"{rows} rows x {matrix.shape[1]:,} columns, {kind}")
    shell.say("chosen", f"{chosen.solver}: {chosen.reason}")
    shell.say(
        "estimate",
        f"{chosen.passes} passes, {lasting(chosen.seconds / speed)}, {chosen.memory / 2**20:,.0f} MiB beyond the data "
        f"({available_memory() / 2**30:.1f} GiB available)",
    )
    if shell.json:
        return
    typer.echo("solver      passes     time        memory")
    for name, (passes, seconds, memory) in costs(matrix, k).items():
        typer.echo(f"{name:<11} {passes:<10} {lasting(seconds / speed):<11} {memory / 2**20:,.0f} MiB")
