"""Pairs of words on a device: skip-gram by programs that share the tables. Repeatable steps, and
machines without Triton, are the CPU engine's."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from eckart.engines.cuda.arrays import DeviceArray
from eckart.engines.cuda.kernels import usable
from eckart.engines.cuda.kernels.words import keep_words, walk
from eckart.engines.protocol.words import LISTEN, PairEvidence, Pieces, WindowRule

APART = 64
"""Words of the vocabulary for each program that walks over the text. Programs change rows by what
the tables were a while ago: on 2 M words of text8 (22,000 different ones) vectors of 345 programs
score as those of threads do: on six word lists within 0.3 to 1.3 standard deviations between seeds
(ten of each), and higher in the mean."""
PROGRAMS = 4096
"""Programs at the most: more do not run at the same time."""


class DeviceCorpus(NamedTuple):
    """Pieces of a text on the device."""

    ids: torch.Tensor
    bounds: torch.Tensor
    keep: torch.Tensor
    chance: torch.Tensor
    alias: torch.Tensor


class DeviceWords:
    """window_table and pair_step."""

    device: torch.device
    tensor: Any
    on_cpu: Any
    held: Any
    back: Any

    def _by_kernels(self) -> bool:
        return usable(torch.empty(0, device=self.device))

    def window_table(self, rows: np.ndarray) -> Any:
        """One more row, and columns up to whole sectors of memory."""
        if not self._by_kernels():
            return self.on_cpu("window_table", rows)
        out = torch.zeros(
            (len(rows) + 1, -(-rows.shape[1] // 8) * 8), dtype=torch.float32, device=self.device
        )
        out[:-1, : rows.shape[1]] = self.tensor(rows, np.float32)
        return DeviceArray(out)

    def pair_step(
        self,
        pieces: Pieces,
        x: Any,
        y: Any,
        part: tuple[int, int],
        rule: WindowRule,
        *,
        rates: tuple[float, float],
        seed: int,
        together: bool = True,
    ) -> PairEvidence:
        if not isinstance(x, DeviceArray):
            return self.on_cpu(
                "pair_step", pieces, x, y, part, rule, rates=rates, seed=seed, together=together
            )
        if not together:
            hosts = [self.back.window_table(a.tensor[:-1].cpu().numpy()) for a in (x, y)]
            counted = self.on_cpu(
                "pair_step", pieces, *hosts, part, rule, rates=rates, seed=seed, together=False
            )
            for a, host in zip((x, y), hosts):
                a.tensor.copy_(torch.from_numpy(host[:, : a.shape[1]]))
            return counted
        if part[1] <= part[0]:
            return PairEvidence(0.0, 0, 0)
        corpus = self._corpus(pieces)
        bounds = pieces.bounds[part[0] : part[1] + 1]
        drawn = keep_words(corpus, part, int(np.diff(bounds).max()), seed)
        programs = min(PROGRAMS, max(1, pieces.n // APART))
        words = int(bounds[-1] - bounds[0])
        found = walk(
            corpus, drawn, part, x.tensor, y.tensor, rule, rates, words, LISTEN, programs
        ).tolist()
        return PairEvidence(found[0], round(found[1]), round(found[2]))

    def _corpus(self, pieces: Pieces) -> DeviceCorpus:
        """Of the text that is walked over, placed once."""
        kept = getattr(self, "_walked", None)
        if kept is None or kept[0] is not pieces:
            kinds: Any = {
                "ids": np.int32,
                "bounds": np.int64,
                "keep": np.int64,
                "chance": np.int64,
                "alias": np.int32,
            }
            whole: Any = [
                self.tensor(getattr(pieces, name).astype(kind, copy=False))
                for name, kind in kinds.items()
            ]
            placed = DeviceCorpus(*whole)
            self._walked = kept = (pieces, placed)
        return kept[1]
