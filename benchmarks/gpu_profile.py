"""Every work of ``gpu.py`` in one process: seconds of the first fit, of one with data on the host,
of resident ones, the share of the floor, and where they go.

    python benchmarks/gpu.py --profile [--only NAME ...] [--limit SECONDS]

The floor is what the numbers that the method must read and multiply take at the ceilings of the
machine (``FLOORS``). For each primitive its calls and its own seconds are told (the device is
waited for, so the sum is larger than the time of the fit), ``cpu:`` is what the CPU engine did.
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from gpu import WORKS, resident_engine

BANDWIDTH = 4.3e12
"""Bytes a second of an H200, measured by copies; and operations a second, measured by large
products."""
RATES = {"half": 790e12, "tf32": 409e12, "double": 63.5e12, "single": 50e12}


def floor(gigabytes: float = 0.0, **teraflops: float) -> float:
    """Seconds: numbers are read and multiplied at the same time."""
    return max(
        gigabytes * 1e9 / BANDWIDTH,
        sum(1e12 * count / RATES[kind] for kind, count in teraflops.items()),
    )


def walks(entries: float, columns: int, times: int) -> float:
    """Gigabytes of so many walks over sparse entries, each of which reads a row of float32 numbers,
    its own number and where it stands."""
    return entries * (4 * columns + 12) * times / 1e9


FLOORS = {
    # sums, 5 steps and 5 of the certificate with upper halves, one exact product
    "pca": floor(16.4 * 2 + 8.2 * 10),
    "pca-exact": floor(
        16.4, half=1.5 * 34
    ),  # the square from halves, of which one product is made above the diagonal alone
    # 10 steps, and the certificate's
    "pca-sparse": floor(walks(24e6, 32, 20) + walks(24e6, 1, 20)),
    "als": floor(walks(18e6, 64, 16 + 8)),  # half sweeps; start and certificate
    "als-implicit-64": floor(walks(18e6, 64, 32 + 8)),  # 4 walks a half sweep
    "als-implicit-256": floor(walks(18e6, 256, 32 + 8)),
    "als-implicit-1024": floor(walks(18e6, 1024, 32 + 8)),
    "bayes-512": floor(
        walks(10e6, 513, 8), tf32=4 * 17.0
    ),  # matrices of columns and of long rows, systems of short ones; two products each
    "gmm-diag": floor(double=100 * 0.033),
    "gmm-full": floor(double=20 * 0.026),
    "nmf-kl": floor(walks(2e6, 50, 400)),
    "lda": floor(walks(2e6, 50, 80)),
    "top": floor(30.0, single=0.48),
}
"""Seconds of the works below which no version of the same method can fall much: for each the
numbers that it reads, or multiplies."""


class Profile:
    """The own seconds and calls of every primitive of an engine; the device is waited for at both
    ends of each."""

    def __init__(self, engine: Any, wait: Callable[[], None]):
        self.own: dict[str, list[float]] = {}
        self.inside: list[float] = []
        self.wait = wait
        names = {
            n for family in type(engine).__mro__ for n in vars(family) if not n.startswith("_")
        }
        for name in sorted(
            names - {"held", "at_work", "known", "reason", "name", "device", "on_cpu", "put"}
        ):
            if callable(getattr(engine, name, None)):
                setattr(
                    engine, name, self._timed(getattr(engine, name), lambda args, name=name: name)
                )
        engine.on_cpu = self._timed(engine.on_cpu, lambda args: f"cpu:{args[0]}")

    def _timed(self, do: Callable[..., Any], title: Callable[[Any], str]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            self.wait()
            begun = time.perf_counter()
            self.inside.append(0.0)
            try:
                return do(*args, **named)
            finally:
                self.wait()
                took, nested = time.perf_counter() - begun, self.inside.pop()
                if self.inside:
                    self.inside[-1] += took
                found = self.own.setdefault(title(args), [0.0, 0])
                found[0] += took - nested
                found[1] += 1

        return call

    def said(self, most: int = 9) -> str:
        first = sorted(self.own.items(), key=lambda item: -item[1][0])[:most]
        return ", ".join(
            f"{name} {own:.3f} ({calls:g})" for name, (own, calls) in first if own > 5e-4
        )


def profile(names: list[str], small: bool, limit: float) -> None:
    """All figures of every work, and where its seconds go, in this process."""
    import torch

    from eckart.engines.cuda import made

    warnings.simplefilter("ignore")
    device, begun = "cuda" if torch.cuda.is_available() else "cpu", time.perf_counter()
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    kept: tuple[Any, Any] = (None, None)

    def timed(work: Any, engine: Any) -> tuple[float, Any]:
        wait()
        start = time.perf_counter()
        model = work.do(kept[1], engine)
        wait()
        return time.perf_counter() - start, model

    for name in names:
        work, start = WORKS[name], time.perf_counter()
        if start - begun > limit:
            print(f"{name:<17} no time left", flush=True)
            continue
        try:
            if kept[0] is not work.make:
                kept = (work.make, work.make(small))
            prepared = time.perf_counter() - start
            first, host = (timed(work, made(None, device))[0] for _ in range(2))
            engine = resident_engine(made(None, device))
            timed(work, engine)
            runs, model = [], None
            for _ in range(1 if first > 6 else 3):
                spent, model = timed(work, engine)
                runs.append(spent)
            holds = getattr(getattr(model, "certificate_", None), "holds", "")
            share = (
                ""
                if name not in FLOORS or small
                else f"  share of the floor {FLOORS[name] / min(runs):.0%}"
            )
            said = (
                f"first {first:.2f}  host {host:.3f}  resident "
                f"{' '.join(f'{r:.3f}' for r in runs)}{share}  data {prepared:.1f}  holds "
                f"{holds}"
            )
            print(f"{name:<17} target {work.target:>5}  {said}", flush=True)
            watched = Profile(engine, wait)
            if min(runs) < 30:
                work.do(kept[1], engine)
                print(f"    {watched.said()}", flush=True)
            if holds is False:
                print("   ", str(model.certificate_)[:600])
        except Exception as error:
            print(f"{name:<17} FAILED {error!r:.300}", flush=True)
            traceback.print_exc(limit=-3)
        engine = model = None
        if device == "cuda":
            torch.cuda.empty_cache()
