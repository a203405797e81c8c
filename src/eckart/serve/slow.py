"""Clients that send the head of a request byte by byte, or without end, are cut; slow bodies are
cut by the application."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from functools import cache
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from eckart.serve.run import ENVIRONMENT

MOST_HEAD = 64 * 2**10
"""Bytes of a request line and its headers: eight times what proxies and servers commonly allow."""
CHUNK = 16
"""Bytes around each chunk of a body: its length in digits and two ends of lines. What comes beside,
extensions of chunks and lines after the body, may be as long as a head."""
TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: "
    b"0\r\n\r\n"
)


@cache
def _seconds() -> float:
    """The limit for slow clients, as this process received it."""
    return float(json.loads(os.environ[ENVIRONMENT])["limits"]["slow"])


class Prompt(HttpToolsProtocol):
    """A connection whose first byte and whose heads come within the limit for slow clients, or that
    is closed."""

    timer: asyncio.TimerHandle | None = None
    head = 0
    around = 0

    def connection_made(self, transport: Any) -> None:
        # Sockets that uvicorn hands to worker processes are not known for TCP and would wait 40 ms
        # before the second packet of an answer.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        if self.timer is not None:
            self.head += len(data)
        if self.head > MOST_HEAD and self.timer is not None and b"\r\n\r\n" not in data[:MOST_HEAD]:
            self.transport.write(TOO_LARGE)
            self.transport.close()
            return
        if self.timer is None:
            self.around += len(data)
        super().data_received(data)
        if self.timer is None and self.around > MOST_HEAD:
            self._cut()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.timer is not None:  # what follows a body is no part of the head
            super().on_header(name, value)

    def on_chunk_header(self) -> None:
        self.around -= CHUNK

    def on_body(self, body: bytes) -> None:
        self.around -= len(body)
        super().on_body(body)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begin()

    def on_headers_complete(self) -> None:
        self._end()
        self.around = 0
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
            self.timer, self.head = None, 0

    def _cut(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
