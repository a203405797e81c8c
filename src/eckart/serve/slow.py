"""Clients that send the head of a request byte by byte are cut; slow bodies are cut by the application."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from functools import cache
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from eckart.serve.run import ENVIRONMENT


@cache
def _seconds() -> float:
    """The limit for slow clients, as this process was told."""
    return float(json.loads(os.environ[ENVIRONMENT])["limits"]["slow"])


class Prompt(HttpToolsProtocol):
    """A connection whose first byte and whose heads come within the limit for slow clients, or that is closed."""

    timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        # Sockets that uvicorn hands to worker processes are not known for TCP and would wait 40 ms before the second packet of an answer.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self._begin()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begin()

    def on_headers_complete(self) -> None:
        self._end()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def _begin(self) -> None:
        self._end()
        self.timer = self.loop.call_later(_seconds(), self._cut)

    def _end(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _cut(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
