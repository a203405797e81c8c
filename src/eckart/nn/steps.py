"""One step of descent: the gradient of a batch, clipped where asked, and the update.

A small network on a GPU waits for the CPU, which starts its kernels one by one. There the whole
step is recorded once for each size of batch, as a CUDA graph, and played back: the same kernels on
the same numbers, started together. Steps are recorded only where all their inputs lie on the device
and the optimiser keeps its state there; everything else goes step by step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from eckart.nn.batches import Index, RowBatch, Source, pieces
from eckart.nn.place import DevicePlace
from eckart.nn.rules import set_rate

_NONE = np.arange(0)
AT_ONCE = 4096
"""Rows of a batch where no size was asked for."""
WARM = 3
"""Steps of a size that are done one by one before it is recorded: libraries choose their kernels in
them."""


class GraphRoom:
    """In how many parts a batch is summed, because the device has no room for it whole."""

    def __init__(self, parts: int = 1):
        self.parts = parts


def gradient(
    net: Any,
    loss: Any,
    rows: Source,
    at: Index,
    place: DevicePlace,
    room: GraphRoom,
    weights: list[Any] | None = None,
) -> torch.Tensor:
    """Loss of the rows at these positions, and its gradient in the ``weights`` (all of the
    network's); in as many parts as the memory of the device asks for."""
    weights = list(net.parameters()) if weights is None else weights
    while True:
        share: Any = None
        try:
            for weight in weights:
                weight.grad = None
            with place.rounding():
                if room.parts == 1:
                    with place.products():
                        share = loss(net, rows.take(at))
                    share.backward()
                    return share.detach()
                value = torch.zeros((), device=place.device)
                for part in pieces(at, min(room.parts, len(at))):
                    with place.products():
                        share = loss(net, rows.take(part)) * (len(part) / len(at))
                    share.backward()
                    value = value + share.detach()
            return value
        except torch.OutOfMemoryError:
            if room.parts >= len(at) or (place.cuda and torch.cuda.is_current_stream_capturing()):
                raise
            share, room.parts = None, 2 * room.parts
        if place.cuda:
            torch.cuda.empty_cache()


def over_rows(rows: Source, use: Callable[[RowBatch], Any], size: int | None = None) -> list[Any]:
    """``use(batch)`` for all rows in order, in blocks of ``size`` at most (4096), smaller ones
    where the device has no room for these."""
    size, out, done = size or AT_ONCE, [], 0
    while done < len(rows):
        end = min(done + size, len(rows))
        try:
            out.append(use(rows.take(rows.index(np.arange(done, end)))))
            done = end
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            torch.cuda.empty_cache()
            size = (min(size, end - done) + 1) // 2
    return out


class TrainingSteps:
    """Steps on batches of ``rows``; ``total`` is the sum of their losses, each times its rows,
    since ``begin``."""

    def __init__(
        self,
        net: Any,
        loss: Any,
        rows: Source,
        optimizer: Any,
        clip: float | None,
        place: DevicePlace,
        room: GraphRoom,
    ):
        self.net, self.loss, self.rows, self.optimizer = net, loss, rows, optimizer
        self.clip, self.place, self.room = clip, place, room
        self.weights = list(net.parameters())
        self.total = torch.zeros((), device=place.device, dtype=torch.float64)

    def begin(self) -> None:
        self.total.zero_()

    def refine(self) -> None:
        """From here on products with finer rounding."""
        self.place = replace(self.place, fine=True)

    def step(self, at: Index, rate: float) -> Any:
        """The loss before the step: on a CPU a number, and one that is not finite leaves the
        weights as they were."""
        set_rate(self.optimizer, rate)
        return self._step(at)

    def _step(self, at: Index) -> Any:
        value: Any = gradient(
            self.net, self.loss, self.rows, at, self.place, self.room, self.weights
        )
        if not self.place.cuda and not math.isfinite(value := value.item()):
            return value
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.clip)
        getattr(self.optimizer, "quick_step", self.optimizer.step)()
        self.total += value.double() * len(at) if self.place.cuda else value * len(at)
        return value


class RecordedSteps(TrainingSteps):
    """Steps that are recorded and played back."""

    def __init__(self, *what: Any):
        super().__init__(*what)
        self.tapes: dict[int, tuple[Any, torch.Tensor, torch.Tensor]] = {}
        self.done: dict[int, int] = {}
        self.aside = torch.cuda.Stream(self.place.device)
        self.given_up = False

    def refine(self) -> None:
        super().refine()
        self.tapes.clear()
        self.done.clear()

    def step(self, at: Index, rate: float) -> torch.Tensor:
        size = len(at)
        set_rate(self.optimizer, rate)
        if size not in self.tapes and not self._recorded(at):
            return self._one(at)
        tape, where, value = self.tapes[size]
        where.copy_(at)
        tape.replay()
        return value

    def _one(self, at: Index) -> torch.Tensor:
        """A step that is not recorded, on the stream on which recording takes place."""
        self.done[len(at)] = self.done.get(len(at), 0) + 1
        here = torch.cuda.current_stream(self.place.device)
        self.aside.wait_stream(here)
        with torch.cuda.stream(self.aside):
            value = self._step(at)
        here.wait_stream(self.aside)
        return value

    def _recorded(self, at: Index) -> bool:
        """Record a step of this size, if it is time and the device has the memory."""
        if self.given_up or self.done.get(len(at), 0) < WARM or self.room.parts > 1:
            return False
        tape, where = torch.cuda.CUDAGraph(), at.clone()
        try:
            self.net.zero_grad(set_to_none=True)
            tape.register_generator_state(
                self.net.draws.generator
            )  # a tape advances no generator that it does not know
            with torch.cuda.graph(tape, stream=self.aside):
                value = self._step(where)
        # no memory for a tape, or a step that cannot be recorded: steps one by one have worked
        except RuntimeError:
            self.given_up = True
            self.tapes.clear()
            torch.cuda.empty_cache()
            return False
        self.tapes[len(at)] = (tape, where, value)
        return True


def steps_of(
    net: Any,
    loss: Any,
    rows: Source,
    optimizer: Any,
    clip: float | None,
    place: DevicePlace,
    room: GraphRoom,
) -> TrainingSteps:
    """Recorded steps where they can be: rows and the state of the optimiser on a GPU."""
    there = place.cuda and place.resident and isinstance(rows.index(_NONE), torch.Tensor)
    kept = all(group.get("capturable") for group in optimizer.param_groups)
    has_registration = hasattr(torch.cuda.CUDAGraph, "register_generator_state")
    kind = RecordedSteps if there and kept and has_registration else TrainingSteps
    return kind(net, loss, rows, optimizer, clip, place, room)
