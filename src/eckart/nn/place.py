"""Where a network runs: device, precision, compilation, threads. What a GPU does differently is
decided here; ``nn.steps`` records steps there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from eckart.errors import InputError, invalid
from eckart.scheduler import resolve_threads

PRECISIONS = ("auto", "float32", "float64", "bfloat16")
RESIDENT_SHARE = 0.5
"""Data up to this share of the free device memory is moved there whole."""
STEP_SECONDS, PRODUCT_RATE, WORTH_COMPILING = 5e-4, 4e14, 60.0
"""Of a large GPU: shortest step, operations a second; and the length of a run, in seconds, from
which it is compiled."""


@dataclass(frozen=True)
class DevicePlace:
    """A device, the precision of weights and of products, whether steps are compiled ("auto": not
    yet decided), whether all rows lie on the device."""

    device: torch.device
    dtype: torch.dtype = torch.float32
    mixed: bool = False
    compiled: bool | str = False
    resident: bool = True
    reason: str = ""
    fine: bool = False

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    def products(self) -> AbstractContextManager[Any]:
        """Matrix products in bfloat16 where precision is mixed; sums and weights stay in
        float32."""
        mixed = self.mixed and not self.fine
        return torch.autocast(self.device.type, torch.bfloat16) if mixed else nullcontext()

    def rounding(self) -> AbstractContextManager[None]:
        """At a ``fine`` place the factors of products in float32 are rounded to 11 bits (TF32), not
        to 8 (bfloat16); forwards and backwards."""
        return self._fine_rounding() if self.fine else nullcontext()

    @contextmanager
    def _fine_rounding(self) -> Iterator[None]:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    def in_words(self) -> str:
        kind = (
            "bfloat16 products, float32 weights"
            if self.mixed
            else str(self.dtype).removeprefix("torch.")
        )
        return f"{self.device}, {kind}" + (", compiled" if self.compiled is True else "")

    def settled(self, steps: int, weights: int, rows: int) -> DevicePlace:
        """Whether to compile a run of so many steps on so many rows in all: on a GPU, where the
        time that it saves pays for it.

        Compiling takes about ten seconds and makes steps by a fifth shorter. A step takes half a
        millisecond at least; its products, 6 operations for each weight and row.

        >>> place = DevicePlace(torch.device("cuda"), compiled="auto")
        >>> place.settled(3200, 2_700_000, 3_600_000).compiled, place.settled(200_000, 2_700_000, 200_000_000).compiled
        (False, True)
        """
        if self.compiled != "auto":
            return self
        seconds = steps * STEP_SECONDS + 6.0 * weights * rows / PRODUCT_RATE
        return replace(self, compiled=self.cuda and seconds > WORTH_COMPILING)


def choose_place(
    device: Any,
    precision: str,
    compiled: Any,
    size: int,
    on_gpu: bool = False,
    in_use: bool = False,
    asked: str = "",
) -> DevicePlace:
    """The place for ``size`` bytes of data: the CPU, unless CUDA is asked for or the data lies
    there (``on_gpu``).

    A model ``in_use`` that was trained on a GPU works on the CPU of a machine that has none.
    ``asked``: the parameter that names the device, for errors.

    >>> choose_place(None, "auto", "auto", 1000).in_words()
    'cpu, float32'
    """
    if precision not in PRECISIONS:
        raise invalid("precision", precision, f"one of {', '.join(PRECISIONS)}")
    name = device or ("cuda" if on_gpu else "cpu")
    try:
        where = torch.device(name)
    except (RuntimeError, TypeError):
        raise invalid("device", device, "None, 'cpu' or 'cuda'") from None
    if where.type not in ("cpu", "cuda"):
        raise invalid("device", device, "None, 'cpu' or 'cuda'")
    if where.type == "cuda" and in_use and not torch.cuda.is_available():
        where = torch.device("cpu")
    if where.type == "cuda" and not torch.cuda.is_available():
        raise InputError(
            f"{asked or f'device={device!r}'} came, but this PyTorch sees no CUDA "
            "device; leave it out to run on the CPU"
        )
    cuda = where.type == "cuda"
    if precision == "bfloat16" and not cuda:
        raise invalid(
            "precision",
            precision,
            "'float32' or 'float64' on a CPU; bfloat16 products are for a GPU",
        )
    mixed = precision == "bfloat16" or (precision == "auto" and cuda)
    dtype = torch.float64 if precision == "float64" else torch.float32
    resident, why = True, "all rows lie on the device"
    if cuda:
        free = torch.cuda.mem_get_info(where)[0]
        resident = size <= RESIDENT_SHARE * free
        why = (
            why
            if resident
            else f"{size / 2**30:.1f} GiB of rows do not fit beside the network; moved batch "
            "by batch"
        )
    return DevicePlace(
        where, dtype, mixed, compiled if compiled == "auto" else bool(compiled), resident, why
    )


@contextmanager
def threads(wanted: int | None) -> Iterator[None]:
    """PyTorch on this many threads of the CPU inside the block; the setting of the user comes
    back."""
    before = torch.get_num_threads()
    torch.set_num_threads(resolve_threads(wanted))
    try:
        yield
    finally:
        torch.set_num_threads(before)
