"""eckart doctor: what this installation runs on, and what is missing."""

from __future__ import annotations

from eckart.cli import options
from eckart.cli.shell import Shell


@options.spread()
def doctor(*, shell: Shell) -> None:
    """Say what this installation runs on: versions, threads, BLAS, free memory, compiled kernels,
    and extras that are missing, with the line to install them.

    Put its answer into a report of a problem.

    Example:

        eckart doctor
    """
    from eckart.versions import installation, lines

    facts = installation()
    shell.answer |= facts
    for name, words in lines(facts):
        shell.say(f"{name:<24}", words)
