"""Normal numbers for a device, drawn on the host from the streams of every engine: the next ones of a sampler while the device is at work."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from eckart.rng import streams

WORTH = 2**20
"""Numbers from which the draws of the next step are made ahead: fewer take less than a millisecond."""
MOST = 4
"""Arrays that are held ahead at the most: two sides of two chains."""


class Draws:
    """A sampler asks for (seed, step, what), step after step. Arrays lie in locked memory, from which the device copies while the host goes on; PyTorch
    takes such memory back when the copy is done, for the next draw."""

    def __init__(self, threads: int):
        self._threads = max(1, int(threads))
        self._pool: Any = None
        self._ahead: dict[Any, Future[torch.Tensor]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of an engine draws for itself."""
        return Draws, (self._threads,)

    def normal(self, seed: int | tuple[int, ...], shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Those of this seed, drawn now or ahead."""
        if self._pool is None:  # one thread that waits for the others
            self._pool = ThreadPoolExecutor(1), ThreadPoolExecutor(self._threads)
        key = (seed, tuple(shape), dtype)
        waiting = self._ahead.pop(key, None)
        found = self._drawn(*key) if waiting is None else waiting.result()
        if isinstance(seed, tuple) and len(seed) == 3 and found.numel() >= WORTH:
            while len(self._ahead) >= MOST:  # of a sampler that has ended
                self._ahead.pop(next(iter(self._ahead)))
            following = ((seed[0], seed[1] + 1, seed[2]), *key[1:])
            self._ahead[following] = self._pool[0].submit(self._drawn, *following)
        return found

    def _drawn(self, seed: int | tuple[int, ...], shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        out = torch.empty(shape, dtype=dtype, pin_memory=torch.cuda.is_available())
        host = out.numpy()

        def fill(item: tuple[slice, np.random.Generator]) -> None:
            part = host[item[0]]
            if host.dtype == np.float64:
                item[1].standard_normal(out=part)
            else:
                part[:] = item[1].standard_normal(part.shape)

        list(self._pool[1].map(fill, streams(seed, shape[0])))
        return out
