"""eckart plan."""

from __future__ import annotations

from typing import Annotated

import typer

from eckart.cli.options import Columns, Index


def plan(
    file: Annotated[str, typer.Argument(help="The data.")],
    components: Annotated[
        str, typer.Option("--components", "-k", help="How many: a number, a share of variance, or auto.")
    ] = "auto",
    columns: Columns = None,
    index: Index = None,
    solver: Annotated[str, typer.Option(help="Plan for this solver instead of the automatic choice.")] = "auto",
) -> None:
    """Estimate passes, time and memory of a reduction before running it, and say what would be chosen and why.

    Example:

        eckart plan data.npy --components 32
    """
    from eckart.cli.common import lasting, load_table, parse_components, say
    from eckart.engines import available_memory
    from eckart.reduce.plan import choose, costs, measured_speed, validate_components

    matrix = load_table(file, columns, index, None).matrix
    k = parse_components(components)
    validate_components(k, matrix.shape[0], matrix.shape[1])
    speed = measured_speed()
    chosen = choose(matrix, k, solver)
    rows = "unknown" if matrix.shape[0] is None else f"{matrix.shape[0]:,}"
    kind = f"{matrix.dtype.name}, {type(matrix).__name__.lower()}"
    say(False, "data", f"{rows} rows x {matrix.shape[1]:,} columns, {kind}")
    say(False, "chosen", f"{chosen.solver}: {chosen.reason}")
    say(
        False,
        "estimate",
        f"{chosen.passes} passes, {lasting(chosen.seconds / speed)}, {chosen.memory / 2**20:,.0f} MiB beyond the data "
        f"({available_memory() / 2**30:.1f} GiB available)",
    )
    typer.echo("solver      passes     time        memory")
    for name, (passes, seconds, memory) in costs(matrix, k).items():
        typer.echo(f"{name:<11} {passes:<10} {lasting(seconds / speed):<11} {memory / 2**20:,.0f} MiB")
