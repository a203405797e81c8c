"""From where a request may come: the names by which a server is reached, and no page of another
origin.

A page on the web can make a browser send requests to this machine. Three headers, which a page
cannot forge, tell them apart: Host names the address that was opened (a foreign name that resolves
to this machine is DNS rebinding), Origin names the page, Sec-Fetch-Site says whether the two belong
together.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import Any

from eckart.serve.problems import Problem


def header_texts(scope: Any) -> dict[bytes, str]:
    """The headers of an ASGI scope, the last one of each name."""
    return {name: value.decode("latin-1") for name, value in scope["headers"]}


def check_source(
    headers: dict[bytes, str],
    accepts: Callable[[str], bool],
    names: str,
    data: bool,
    schemes: tuple[str, ...] = ("http", "https"),
) -> None:
    """Refuse another host, a page of another origin and, for a request for ``data``, what the
    browser calls cross-site."""
    host = headers.get(b"host", "").lower()
    if not accepts(host):
        raise Problem(421, f"host must be {names}, got {host[:80]!r}")
    origin = headers.get(b"origin")
    if origin is not None and origin.lower() not in [f"{scheme}://{host}" for scheme in schemes]:
        raise Problem(
            403, f"a page must be one of {host[:80]!r}, or a program, got a page of {origin[:80]!r}"
        )
    if data and headers.get(b"sec-fetch-site", "none") not in ("same-origin", "none"):
        raise Problem(
            403, "a page must be one of this server, or a program, got a page of another origin"
        )


class AllowedHosts:
    """Names under which the service answers: addresses in digits, which no rebinding can take, this
    machine's own names, and those that were allowed.

    >>> AllowedHosts(["models.example"])("127.0.0.1:8000"), AllowedHosts()("evil.example")
    (True, False)
    """

    def __init__(self, more: tuple[str, ...] | list[str] = ()):
        self.names = {"localhost", socket.gethostname().lower(), *(name.lower() for name in more)}

    def __call__(self, host: str) -> bool:
        name = (
            host.rpartition("]")[0].removeprefix("[")
            if host.startswith("[")
            else host.partition(":")[0]
        )
        if name in self.names or "*" in self.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def __str__(self) -> str:
        return (
            f"{' or '.join(sorted(self.names))}, or an address in digits; --allow-host NAME "
            "allows another"
        )
