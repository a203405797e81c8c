"""eckart compare."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from eckart.cli import options
from eckart.cli.cluster import ClusterOptions
from eckart.cli.options import CellOptions, TripleOptions, option
from eckart.cli.shell import Shell, echo
from eckart.errors import InputError, invalid
from eckart.registry import class_named, methods

METHODS = methods("complete", lists=True)


@options.spread(ClusterOptions)
def compare(
    file: Annotated[str, typer.Argument(help="The data: triples, one observation a line.")],
    *,
    triples: TripleOptions,
    methods: Annotated[
        str,
        option(
            help="Which, separated by commas: als, ease, slim, gf-cf, blend (of three of them)."
        ),
    ] = "als,ease,slim,gf-cf,blend",
    at: Annotated[int, option(help="Length of the lists.")] = 10,
    held_out: options.HeldOut = None,
    time: Annotated[
        str | None,
        option(
            help="The column of times: the last entries of every row are hidden, and what is "
            "popular of late is compared."
        ),
    ] = None,
    seed: Annotated[int, option(help="Seed of every random choice.")] = 0,
    engine: options.Engine = "auto",
    threads: options.Threads = None,
    checkpoint: options.Checkpoint = None,
    written: CellOptions,
    shell: Shell,
) -> None:
    """Compare recommenders on the same hidden entries, in one table; what is popular is always
    among them.

    Every method is fitted to the same part of the data and lists the best columns that a row has
    not seen; the hidden entries say how good the lists are.

    Examples:

        eckart compare clicks.csv --rows user --columns page

        eckart compare clicks.csv --rows user --columns page --time when

        eckart compare ratings.csv --rows user --columns movie --values rating --methods ease,gf-cf
        --at 20
    """
    from eckart.cli.attribute_files import times_in
    from eckart.cli.building import held_out_share
    from eckart.cli.reading import described, facts, local, reading_of
    from eckart.complete.compare_lists import compare as compared

    names = [name.strip() for name in methods.split(",")]
    for name in names:
        if name not in METHODS:
            raise invalid("--methods", name, ", ".join(METHODS))
    on = options.engine_option(engine)
    share = held_out_share(held_out, 0.2)
    if not share:
        raise invalid(
            "--held-out", share, "a share above 0: the lists are judged by what is hidden"
        )
    source = reading_of(triples, written)
    if not source.long:
        raise InputError(
            "--rows and --columns must be the columns of the file that hold the two ids, got "
            "neither"
        )
    with shell.phase(f"reading {file}"):
        path = local(file)
        x = source.observed(path, shell)
        times = None if time is None else times_in(source, path, time, x)[0]
    shell.say("data", described(path, x))
    models = {
        name: _model(name, x.shape).set_params(engine=on or "auto") for name in dict.fromkeys(names)
    }
    found = compared(
        x,
        models=models,
        held_out=share,
        times=times,
        at=at,
        random_state=seed,
        n_threads=threads,
        checkpoint=checkpoint,
    )
    shell.answer |= {
        "data": facts(path, x),
        "best": found.best,
        "left_out": found.left_out,
        "table": [row._asdict() for row in found.table],
    }
    if not shell.json:
        echo(str(found))


def _model(name: str, shape: tuple[int, int]) -> Any:
    """The estimator of a method, with its defaults for implicit feedback."""
    from eckart.complete.compare_lists import RANK

    kind = class_named(METHODS[name])
    return kind(max(1, min(RANK, *shape)), feedback="implicit") if name == "als" else kind()
