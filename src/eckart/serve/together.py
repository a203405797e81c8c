"""Requests for lists that wait at the same moment are answered by one product (see ``lists``)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import numpy as np

from eckart.serve.models import Served


class Together:
    """Gathers what the event loop has read before it turns to the answers."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Served, np.ndarray, int, bool, asyncio.Future[Any]]] = []

    async def best(self, served: Served, at: np.ndarray, n: int, exclude_seen: bool) -> Any:
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[Any] = loop.create_future()
        self.waiting.append((served, at, n, exclude_seen, mine))
        if len(self.waiting) == 1:
            loop.call_soon(self._answer)
        return await mine

    def _answer(self) -> None:
        asked, self.waiting = self.waiting, []
        groups = defaultdict(list)
        for one in asked:
            groups[id(one[0]), one[2], one[3]].append(one)
        for (_, n, exclude_seen), group in groups.items():
            try:
                at = np.concatenate([at for _, at, *_ in group])
                found = group[0][0].lists.best(at, n, exclude_seen)  # type: ignore[union-attr]
            except Exception as error:
                for *_, future in group:
                    if not future.done():
                        future.set_exception(error)
                continue
            start = 0
            for _, at, _, _, future in group:
                part = slice(start, start + len(at))
                start += len(at)
                if not future.done():
                    future.set_result(found.part(part))
