"""A first fit compiles its kernels one after the other, and each waits for the last. Here other
processes compile those that will be asked for later, the last first, so that they are in numba's
cache when their turn comes.

Which kernels a model asks for, and with arguments of which types, was recorded from first fits of
small data (``tests/first_kernels.py`` writes ``ahead.json`` anew). A fit that asks for others
compiles them as if there were no such list; what is compiled twice is the same code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

Kernel = tuple[str, Any]
"""``module:name`` and the spelled types of the arguments."""
LIST = Path(__file__).with_name("ahead.json")
MOST = 3
"""Processes beside this one: a model has 5 to 12 kernels, and the longest of them is a third of the
work."""
WORTH = 2
"""Kernels that must be left: a process needs about as long to start as one kernel takes to
compile."""
SWITCH = "ECKART_COMPILERS"
"""The environment's word on how many processes may help; 0 for none."""


@cache
def recorded() -> dict[str, list[list[Kernel]]]:
    """For every model the kernels of its first fits in their order; a model has several lists, by
    the kind of its data."""
    content = json.loads(LIST.read_text())
    kernels = [(place, args) for place, args in content["kernels"]]
    return {
        model: [[kernels[i] for i in order] for order in orders]
        for model, orders in content["models"].items()
    }


def expect(model: str) -> None:
    """A fit of this model begins that needs kernels."""
    if model in recorded():  # the others may do without numba, whose import takes half a second
        from eckart.engines.cpu.kernel_names import listen

        listen(model, send)


def _helpers() -> int:
    """How many processes may help: those of other cores, none where this program is not Python's
    own."""
    if not Path(sys.executable or "").name.startswith("python"):
        return 0
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    asked = os.environ.get(SWITCH, "")
    return min(cores - 1, int(asked) if asked.isdigit() else MOST)


def send(model: str, kernel: Kernel) -> bool:
    """This kernel is being compiled: let others compile those that follow it. False where nobody
    could."""
    orders = recorded()[model]
    at = next((at for at, order in enumerate(orders) if kernel in order), None)
    if at is None:
        return False
    first, count = orders[at].index(kernel) + 1, len(orders[at])
    helpers = min(_helpers(), (count - first) // WORTH)
    home = str(Path(__file__).parents[3])
    code = (
        f"import sys; sys.path.append({home!r}); from eckart.engines.cpu.ahead import "
        f"compile_share; compile_share({model!r}, {at}, {first}, %d, {helpers})"
    )
    for share in range(helpers):
        try:
            # a session of its own: an interrupt of the fit does not end what the next fit needs,
            # too
            helper = subprocess.Popen(
                [sys.executable, "-P", "-W", "ignore", "-c", code % share],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=os.environ | {SWITCH: "0"},
            )
            threading.Thread(
                target=helper.wait, daemon=True
            ).start()  # an ended process that nobody waits for stays in the system's table
        except OSError:
            break  # no room for a process: this one compiles all by itself
    return helpers > 0


def compile_share(model: str, at: int, first: int, share: int, shares: int) -> None:
    """The work of one process: every ``shares``-th kernel from the end of a list down to ``first``,
    as long as the process that asked is there."""
    from eckart.engines.cpu.kernel_names import dispatcher_of, unspelled

    asked_by = os.getppid()
    for place, args in recorded()[model][at][first:][::-1][share::shares]:
        if os.getppid() != asked_by:
            return
        dispatcher_of(place).compile(tuple(map(unspelled, args)))
