"""Who may ask the studio, and from where. Looked at before anything else.

The browser that was opened with the token (then a cookie) may, and a program that sends it. A page
of another origin may not, nor may one reach the studio by another name (DNS rebinding): Host,
Origin and Sec-Fetch-Site are compared. Cookies do not know ports, so the origin is asked for every
question.
"""

from __future__ import annotations

import hmac
import logging
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from eckart.serve.guard import check_source, header_texts
from eckart.serve.problems import Problem

log = logging.getLogger("eckart.studio")
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Keys:
    """The token, the names by which the studio is reached, the name of its cookie, and tickets that
    are good once."""

    token: str
    hosts: frozenset[str]
    cookie: str
    tickets: set[str] = field(default_factory=set)

    def may(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())

    def redeem(self, given: str) -> bool:
        """The token, or a ticket, which is then void: others may see the command line of a
        browser."""
        if self.may(given):
            return True
        asked = given.encode("utf-8", "replace")
        ticket = next((t for t in self.tickets if hmac.compare_digest(t.encode(), asked)), None)
        self.tickets.discard(ticket or "")
        return ticket is not None


def refusal(problem: Problem) -> Response:
    return Response(problem.body(), problem.status, problem.headers, "application/problem+json")


class Guard:
    """Around everything: who asks, from where; problems as JSON; headers that browsers obey."""

    def __init__(self, app: Any, keys: Keys, studio: Any, closing: Any):
        self.app, self.keys, self.studio, self.closing = app, keys, studio, closing

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                have = {name for name, _ in message["headers"]}
                more = [
                    (n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in have
                ]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        try:
            self._admit(scope)
            await self.app(scope, receive, guarded)
        except Problem as problem:
            await refusal(problem)(scope, receive, guarded)
        except ClientDisconnect:
            pass
        except Exception:  # the page knows already; the log has the lines that lead to it
            log.exception("a bug in eckart")

    def _admit(self, scope: Any) -> None:
        keys, headers = self.keys, header_texts(scope)
        api = scope["path"].startswith("/api/")
        check_source(
            headers, keys.hosts.__contains__, " or ".join(sorted(keys.hosts)), api, ("http",)
        )
        if not api:
            return
        if scope["path"] == "/api/session":
            return
        given = headers.get(b"authorization", "").removeprefix("Bearer ")
        if not given:
            pairs = (part.strip().partition("=") for part in headers.get(b"cookie", "").split(";"))
            given = next((value for name, _, value in pairs if name == keys.cookie), "")
        if not keys.may(given):
            raise Problem(
                401,
                "no valid token came; open the address that eckart studio printed",
                {"www-authenticate": "Bearer"},
            )
