"""What the engine holds of a matrix: the host's copy (made when asked for), and tensors on the
device, made once.

Dense rows lie on the device whole where they fit in ``SHARE`` of its free memory; larger data
stream through two pinned buffers, the copy of one block under way while the block before it is
worked on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from eckart.engines.cuda.arrays import fetched, torch_dtype
from eckart.engines.cuda.device_array import NUMPY
from eckart.engines.cuda.stored import EntryArrays, Places
from eckart.engines.host import Host
from eckart.engines.protocol import GapsFound, refuse_bad
from eckart.engines.row_blocks import jobs
from eckart.matrix import Dense

SHARE = 0.6
"""Share of the free memory of the device that dense rows may take: the rest is for blocks, factors
and products."""


class RoomLeft:
    """Bytes that may be worked on at once; halved where a device ran out of memory.

    On a GPU a block of dense rows is large enough that starting a product costs nothing against it,
    and a chunk of gathered rows fills the device with a sixteenth of its memory (what is made of a
    chunk takes some times its size); blocks of CPU tensors fit in cache.
    """

    def __init__(self, device: torch.device):
        self.block, self.chunk = 2**22, 2**24
        if device.type == "cuda":
            self.block, self.chunk = (
                2**27,
                max(2**30, torch.cuda.get_device_properties(device).total_memory // 16),
            )

    def smaller(self) -> None:
        self.block, self.chunk = self.block // 4, self.chunk // 4


class DeviceMatrix:
    """A placed matrix (see ``engines.protocol.placed``); all but what the protocol names is for the
    engine alone."""

    def __init__(
        self,
        make: Callable[[], Host],
        facts: Any,
        device: torch.device,
        room: RoomLeft,
        other: DeviceMatrix | None = None,
    ):
        self._make, self._facts, self.device, self.room, self._other = (
            make,
            facts,
            device,
            room,
            other,
        )
        self.kept: dict[Any, Any] = {}
        self.checked = facts.kind != "dense"

    @classmethod
    def of(cls, host: Host, device: torch.device, room: RoomLeft) -> DeviceMatrix:
        return cls(lambda: host, host, device, room)

    @classmethod
    def of_rows(cls, rows: torch.Tensor, x: DeviceMatrix) -> DeviceMatrix:
        """Dense rows that were made on the device and are known to be finite, with the weights of
        the rows of x."""

        def fetch() -> Host:
            return Host(Dense(fetched(rows)), x.host.weights, checked=True)

        facts = SimpleNamespace(
            kind="dense",
            rows=None,
            columns=None,
            shape=tuple(rows.shape),
            dtype=NUMPY[rows.dtype],
            nnz=rows.numel(),
            weighted=x.weighted,
        )
        made = cls(fetch, facts, x.device, x.room)
        made.__dict__.update(resident=rows.contiguous(), weights=x.weights, checked=True)
        return made

    @classmethod
    def with_entries(
        cls, x: DeviceMatrix, data: torch.Tensor, weights: torch.Tensor | None
    ) -> DeviceMatrix:
        """The entries of x with other numbers and weights of their own; where they stand is shared,
        and rows have no weights."""

        def fetch() -> Host:
            own = None if weights is None else fetched(weights)
            return Host(
                replace(x.host.matrix, data=fetched(data)),
                None,
                own,
                checked=True,
                turn=x.host.turn,
            )

        return cls._at_places(
            x,
            fetch,
            EntryArrays(x.entries.places, data, weights, x.room),
            None,
            kind=x.kind,
            weighted=weights is not None,
        )

    @classmethod
    def zero_filled(cls, x: DeviceMatrix, fetch: Callable[[], Host]) -> DeviceMatrix:
        """The same entries and weights; what is not stored is zero."""
        return cls._at_places(x, fetch, x.entries, x.weights, kind="counts", weighted=x.weighted)

    @classmethod
    def _at_places(
        cls,
        x: DeviceMatrix,
        fetch: Callable[[], Host],
        entries: EntryArrays,
        weights: torch.Tensor | None,
        **facts: Any,
    ) -> DeviceMatrix:
        same = ("rows", "columns", "shape", "dtype", "nnz", "counts", "column_counts")
        known = SimpleNamespace(**{name: getattr(x, name) for name in same}, **facts)
        made = cls(fetch, known, x.device, x.room)
        made.__dict__.update(entries=entries, weights=weights)
        return made

    @cached_property
    def host(self) -> Host:
        """The matrix on the host, for primitives of the CPU engine."""
        return self._make()

    kind = property(lambda self: self._facts.kind)
    rows = property(lambda self: self._facts.rows)
    columns = property(lambda self: self._facts.columns)
    shape = property(lambda self: self._facts.shape)
    dtype = property(lambda self: self._facts.dtype)
    nnz = property(lambda self: self._facts.nnz)
    counts = property(lambda self: self._facts.counts)
    column_counts = property(lambda self: self._facts.column_counts)
    weighted = property(lambda self: self._facts.weighted)

    @cached_property
    def T(self) -> DeviceMatrix:
        """The columns' view: transposed on the device; on the host only if a primitive of the CPU
        engine asks for it."""
        if self._other is not None:
            return self._other
        turned = DeviceMatrix(lambda: self.host.T, _Turned(self), self.device, self.room, self)
        return turned

    def tensor(self, array: Any, dtype: Any = None) -> torch.Tensor:
        return to_device(array, self.device, dtype)

    @cached_property
    def weights(self) -> torch.Tensor | None:
        """One number for each row, in float64."""
        w = self._facts.weights if self._other is None else None
        return None if w is None else self.tensor(w, np.float64)

    @cached_property
    def entries(self) -> EntryArrays:
        """Compressed rows on the device."""
        if self._other is not None:
            return self._other.entries.turned(self._other.weights)
        m, w = self._facts.matrix, self._facts.entry_weights
        places = Places(
            self.tensor(m.indptr, np.int64), self.tensor(m.indices, np.int64), m.shape[1]
        )
        return EntryArrays(
            places,
            self.tensor(m.data, m.dtype),
            None if w is None else self.tensor(w, m.dtype),
            self.room,
        )

    def kept_ridges(self, rule: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """The ridge of every row and of its bias under a rule, in float64, made once for all
        matrices with entries at these places."""
        kept = self.entries.places.kept
        if ("ridges", rule) not in kept:
            kept["ridges", rule] = tuple(
                self.tensor(a, np.float64) for a in rule.ridges(self.counts)
            )
        return kept["ridges", rule]

    def blocks(self, watch: Any = None) -> Iterator[tuple[int, torch.Tensor]]:
        """(first row, rows on the device in working precision), in order, checked by the first pass
        over them."""
        total = self.shape[0]
        for start, block in self._placed_blocks():
            yield start, block
            if watch is not None:
                watch("rows read", start + len(block), total)
        self.checked = True

    def _placed_blocks(self) -> Iterator[tuple[int, torch.Tensor]]:
        resident = self.resident
        if resident is None:
            for start, block in self._streamed(self.block_rows):
                if not self.checked and not bool(torch.isfinite(block.sum())):
                    _refuse(block, start)
                yield start, block
            return
        step = self.block_rows
        for a in range(0, len(resident), step):
            yield a, resident[a : a + step]

    @property
    def block_rows(self) -> int:
        """Rows of a block."""
        return max(128, self.room.block // max(1, self.shape[1] * self.dtype.itemsize))

    @cached_property
    def resident(self) -> torch.Tensor | None:
        """All dense rows on the device, or None where they have no room there or come as a
        stream."""
        whole = self.whole()
        if whole is not None:
            try:
                self._look(whole)
            except GapsFound:
                # for those who take rows with gaps: they need not travel again
                self.kept["whole"] = whole
                raise
        return whole

    @property
    def given(self) -> torch.Tensor | None:
        """Dense rows that came on the device."""
        there = getattr(
            getattr(getattr(self._facts, "matrix", None), "values", None), "tensor", None
        )
        return there if there is not None and there.device.type == self.device.type else None

    def whole(self) -> torch.Tensor | None:
        """The same, not looked at: NaN may stand in them."""
        if "whole" in self.kept:
            return self.kept.pop("whole")
        values = self._facts.matrix.values
        if self.given is not None:
            return self.given.to(torch_dtype(self.dtype)).contiguous()
        if not isinstance(values, np.ndarray):
            return None
        if not self.fits(values.size):
            return None
        if self.device.type == "cpu":
            return torch.from_numpy(np.array(values, self.dtype, order="C"))
        whole = torch.empty(values.shape, dtype=torch_dtype(self.dtype), device=self.device)
        for start, block in self._streamed(self.block_rows):
            whole[start : start + len(block)].copy_(block)
        return whole

    def fits(self, numbers: int) -> bool:
        """Whether so many numbers of these rows may lie on the device."""
        return (
            self.device.type != "cuda"
            or numbers * self.dtype.itemsize <= SHARE * torch.cuda.mem_get_info(self.device)[0]
        )

    def _look(self, whole: torch.Tensor) -> None:
        """Refuse NaN and infinities of resident rows, once: a sum for each block, and one answer
        for all of them."""
        step = self.block_rows
        sums = [whole[a : a + step].sum() for a in range(0, len(whole), step)]
        if sums and not bool(torch.isfinite(torch.stack(sums)).all()):
            for a, found in zip(range(0, len(whole), step), sums):
                if not bool(torch.isfinite(found)):
                    _refuse(whole[a : a + step], a)
        self.checked = True

    def _streamed(self, rows: int) -> Iterator[tuple[int, torch.Tensor]]:
        """Blocks from the host; on a GPU through two pinned buffers, the next copy under way while
        a block is worked on."""
        source = (
            (start, fetch({}))
            for start, _, fetch in jobs(replace(self._facts, checked=True), rows=rows)
        )
        if self.device.type == "cpu":
            yield from (
                (start, torch.from_numpy(np.ascontiguousarray(block))) for start, block in source
            )
            return
        side, main = torch.cuda.Stream(self.device), torch.cuda.current_stream(self.device)
        pinned: list[Any] = [None, None]
        copied: list[Any] = [None, None]
        waiting: tuple[int, torch.Tensor, Any] | None = None
        for turn, (start, block) in enumerate(source):
            at = turn % 2
            if copied[at] is not None:
                copied[at].synchronize()  # the copy out of this buffer is done
            if pinned[at] is None or pinned[at].numel() < block.size:
                pinned[at] = torch.empty(
                    block.size, dtype=torch_dtype(block.dtype), pin_memory=True
                )
            own = pinned[at][: block.size].view(block.shape)
            own.copy_(torch.from_numpy(np.ascontiguousarray(block)))
            with torch.cuda.stream(side):
                there = own.to(self.device, non_blocking=True)
                copied[at] = torch.cuda.Event()
                copied[at].record(side)
            if waiting is not None:
                yield self._arrived(waiting, main)
            waiting = (start, there, copied[at])
        if waiting is not None:
            yield self._arrived(waiting, main)

    @staticmethod
    def _arrived(waiting: tuple[int, torch.Tensor, Any], main: Any) -> tuple[int, torch.Tensor]:
        start, block, event = waiting
        main.wait_event(event)
        block.record_stream(main)
        return start, block


class _Turned:
    """What the columns' view says of itself without a transpose on the host."""

    def __init__(self, held: DeviceMatrix):
        self.kind, self.rows, self.columns, self.dtype = (
            held.kind,
            held.columns,
            held.rows,
            held.dtype,
        )
        self.shape, self.nnz, self.weighted = held.shape[::-1], held.nnz, held.weighted
        self._held = held

    @property
    def counts(self) -> np.ndarray:
        return self._held.column_counts

    @property
    def column_counts(self) -> np.ndarray:
        return self._held.counts


def _refuse(block: torch.Tensor, start: int) -> None:
    """``refuse_bad``, for which the one row comes to the host that it is about."""
    for bad in (torch.isinf(block), torch.isnan(block)):
        rows = bad.any(1).long()
        found, at = torch.stack([rows.amax(), rows.argmax()]).tolist()
        if found:
            refuse_bad(fetched(block[at : at + 1]), start + at)


def refuse_infinite(rows: torch.Tensor, start: int = 0) -> None:
    """Raise for the first infinity; NaN may stand in the rows."""
    if bool(torch.isinf(rows).any()):
        _refuse(rows, start)


def to_device(array: Any, device: torch.device, dtype: Any = None) -> torch.Tensor:
    """An array of the host or of the engine, on the device."""
    tensor = getattr(array, "tensor", None)
    if not isinstance(tensor, torch.Tensor):
        host = np.asarray(array)
        if not host.flags.writeable:
            host = host.copy()
        tensor = torch.from_numpy(np.ascontiguousarray(host))
    # moved first: what is cast there is not moved twice as wide; memory of the host has been read
    # when the call returns, and the device is not waited for
    tensor = tensor.to(device, non_blocking=True)
    return tensor if dtype is None else tensor.to(torch_dtype(dtype))
