"""The numbers of a ridge problem at the entries: weight w, target y and q = w y of each, as
``protocol.ridge`` says."""

from __future__ import annotations

from typing import NamedTuple

import torch

from eckart.engines.cuda.dense import entry_product
from eckart.engines.cuda.kernels import usable
from eckart.engines.cuda.kernels.products import entry_sums
from eckart.engines.cuda.stored import Chunk, EntryArrays
from eckart.engines.protocol import RidgeRule


class Known(NamedTuple):
    """The numbers of the formula for every entry: arrays on the device or None, as in
    ``cpu.entries.entry``."""

    entries: EntryArrays
    weights: torch.Tensor | None
    own: torch.Tensor | None
    other: torch.Tensor | None
    bias: torch.Tensor | None
    offset: torch.Tensor | None
    mean: float
    rule: RidgeRule

    @property
    def even(self) -> bool:
        """Whether every entry weighs one."""
        return (
            self.weights is None and self.own is None and self.other is None and not self.rule.alpha
        )

    def evenly(self) -> tuple[Known, torch.Tensor | None]:
        """Where every entry has one weight w: the same without it, and sqrt(w), with which V and y
        are to be multiplied."""
        alone = (
            self.own is not None
            and len(self.own) == 1
            and self.weights is None
            and self.other is None
        )
        if not alone or self.rule.alpha:
            return self, None
        return self._replace(own=None), self.own.sqrt()  # type: ignore[union-attr]

    def at(self, chunk: Chunk) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
        """w (None: all one), y and q of the entries of a chunk; y and q are zero where nothing
        stands, and so is w."""
        a = chunk.numbers(self.entries.data)
        if self.rule.alpha:
            w = self.rule.alpha * a
            return w, chunk.seen.to(a.dtype), torch.where(w > 0, w + self.rule.shift, 0.0)
        w = None if self.weights is None else chunk.numbers(self.weights)
        for each in (
            None
            if self.own is None
            else self.own[chunk.rows][:, None]
            if len(self.own) > 1
            else self.own,
            None if self.other is None else self.other[chunk.columns],
        ):
            if each is not None:
                w = each * chunk.seen if w is None else w * each
        y = a - self.mean
        if self.bias is not None:
            y = y - self.bias[chunk.rows][:, None]
        if self.offset is not None:
            y = y - self.offset[chunk.columns]
        y = torch.where(chunk.seen, y, 0.0)
        return w, y, y if w is None else w * y

    def flat(self) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
        """The same of all entries, in row order."""
        a, e = self.entries.data, self.entries
        if self.rule.alpha:
            w = self.rule.alpha * a
            return w, torch.ones_like(a), torch.where(w > 0, w + self.rule.shift, 0.0)
        w = self.weights
        for each in (
            None
            if self.own is None
            else self.own[e.row_of]
            if len(self.own) > 1
            else self.own.repeat(len(a)),
            None if self.other is None else self.other[e.indices],
        ):
            if each is not None:
                w = each if w is None else w * each
        y = a - self.mean if self.mean else a
        if self.bias is not None:
            y = y - self.bias[e.row_of]
        if self.offset is not None:
            y = y - self.offset[e.indices]
        return w, y, y if w is None else w * y


def row_sums(entries: EntryArrays, numbers: torch.Tensor) -> torch.Tensor:
    """sum_j of numbers at the entries, for every row, in float64."""
    if usable(numbers):
        return entry_sums(entries.pieces, numbers)
    one = torch.ones((entries.n, 1), dtype=torch.float64, device=numbers.device)
    return entry_product(entries, numbers.double(), one)[:, 0]
