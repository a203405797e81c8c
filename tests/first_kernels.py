"""Which kernels a first fit compiles, in their order: writes ``engines/cpu/ahead.json``, from which
other processes know what to compile meanwhile.

python tests/first_kernels.py            all fits, each in a process of its own with an empty cache:
about three minutes
python tests/first_kernels.py PMI 0      one of them; its kernels as a line of JSON
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from numba.core import event

import eckart
from eckart.cli.warm import small_table, small_texts
from eckart.engines.cpu import ahead
from eckart.engines.cpu.engine import CpuEngine
from eckart.engines.cpu.kernel_names import name_of

CpuEngine.small = 0.0
"""These data are small, which would do without kernels."""


def fit(name: str, *args: Any, on: Callable[[], Any], **params: Any) -> Callable[[], None]:
    return lambda: getattr(eckart, name)(*args, random_state=0, **params).fit(on())


def both(name: str, *args: Any, gaps: float, **params: Any) -> list[Callable[[], None]]:
    """In double and in single precision."""
    return [
        fit(name, *args, on=lambda dtype=dtype: small_table(dtype, gaps), **params)
        for dtype in ("float64", "float32")
    ]


FITS: dict[str, list[Callable[[], None]]] = {
    "ALS": [*both("ALS", 2, gaps=0.4), *both("ALS", 2, gaps=0.4, feedback="implicit")],
    "BayesianMF": both("BayesianMF", 2, gaps=0.4),
    "SoftImpute": both("SoftImpute", gaps=0.4),
    "GaussianMixture": [
        *both("GaussianMixture", 2, gaps=0.0),
        *both("GaussianMixture", 2, gaps=0.1),
    ],
    "NMF": [*both("NMF", 2, gaps=0.0), fit("NMF", 2, on=lambda: eckart.corpus(small_texts()))],
    "LDA": [fit("LDA", 3, on=lambda: eckart.corpus(small_texts()))],
    "PLSA": [fit("PLSA", 3, on=lambda: eckart.corpus(small_texts()))],
    "SkipGram": [fit("SkipGram", 4, on=small_texts)],
    "PMI": [fit("PMI", 4, on=small_texts)],
}
"""Models whose first fit takes seconds, with the kinds of data that newcomers have. Not GloVe: its
longest kernel stands in the middle, two processes came to it at the same time, and on two cores the
fit took longer than alone."""


def kernels_of(fit: Callable[[], None]) -> list[Any]:
    """The kernels that a fit has compiled in this process, in their order."""
    order: list[Any] = []

    class Listener(event.Listener):  # type: ignore[misc]
        depth = 0

        def on_start(self, event: Any) -> None:
            name = name_of(event.data)
            if not self.depth and name is not None and list(name) not in order:
                order.append(list(name))
            self.depth += 1

        def on_end(self, event: Any) -> None:
            self.depth -= 1

    listener = Listener()
    event.register("numba:compile", listener)
    try:
        fit()
    finally:
        event.unregister("numba:compile", listener)
    return order


def orders_of(model: str) -> list[list[Any]]:
    """Those of every kind of data."""
    return [alone(model, at) for at in range(len(FITS[model]))]


def alone(model: str, at: int) -> list[Any]:
    """The same in a process of its own, to which nothing is compiled yet."""
    with tempfile.TemporaryDirectory() as folder:
        told = subprocess.run(
            [sys.executable, "-W", "ignore", __file__, model, str(at)],
            env=os.environ | {"NUMBA_CACHE_DIR": folder, ahead.SWITCH: "0"},
            stdout=subprocess.PIPE,
            check=True,
        )
    return list(json.loads(told.stdout.splitlines()[-1]))


def write(orders: dict[str, list[list[Any]]]) -> None:
    """Every kernel once, a line each; a fit names them by their numbers."""
    kernels: list[Any] = []
    for order in (order for some in orders.values() for order in some):
        kernels += [kernel for kernel in order if kernel not in kernels]
    places = {
        model: [[kernels.index(k) for k in order] for order in some]
        for model, some in orders.items()
    }
    places = {
        model: [o for at, o in enumerate(some) if o not in some[:at]]
        for model, some in places.items()
    }
    models = ",\n".join(
        f"{json.dumps(model)}: {json.dumps(some)}" for model, some in places.items()
    )
    lines = ",\n".join(map(json.dumps, kernels))
    ahead.LIST.write_text(f'{{"models": {{\n{models}\n}}, "kernels": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(kernels_of(FITS[sys.argv[1]][int(sys.argv[2])])))
    else:
        write({model: orders_of(model) for model in FITS})
