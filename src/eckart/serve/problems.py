"""Errors of the service: a JSON problem (RFC 9457) that says what came, what was wanted and what to
do."""

from __future__ import annotations

import json

TITLES = {
    400: "The body cannot be read",
    401: "A token is needed",
    403: "Not from there",
    404: "There is no such place",
    405: "Another method is needed",
    406: "No such format is written",
    408: "The request came too slowly",
    409: "Not as things are",
    413: "The request is too large",
    415: "No such format is read",
    421: "Another host is needed",
    422: "The request cannot be answered",
    429: "Too many requests at once",
    500: "A bug in eckart",
    503: "Not ready",
}


class Problem(Exception):
    """A request that is refused."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None):
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers or {}

    def body(self) -> bytes:
        fields = {
            "type": "about:blank",
            "title": TITLES[self.status],
            "status": self.status,
            "detail": self.detail,
        }
        return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")
