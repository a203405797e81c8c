"""The service as an ASGI application: places, limits, tokens and logs. It holds no data of a
request longer than the request.

There are eight places and two methods, so they are distinguished here, without a framework between the
socket and the answer.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from eckart import __version__
from eckart.errors import EckartError
from eckart.query.answers import TooLarge, answer, check_limits, ids_of
from eckart.query.requests import VERBS, Recommend
from eckart.serve.bodies import JSON, read_request, to_json, written
from eckart.serve.guard import AllowedHosts, check_source, header_texts
from eckart.serve.lists import TOGETHER
from eckart.serve.meter import Meter
from eckart.serve.models import ModelRegistry, Served
from eckart.serve.openapi import openapi
from eckart.serve.problems import Problem
from eckart.serve.together import Together

log = logging.getLogger("eckart.serve")
OPEN = ("/health", "/ready")
"""Places that need no token: they tell nothing."""
LARGE = 100_000
"""Bytes of a body from which on it is parsed in a thread: in a millisecond other requests may be
answered."""
MANY_VALUES = 10_000
"""Values of an answer from which on it is written in a thread: about a millisecond."""
MOST_DIGITS = 18
"""Digits of a length that is read at all; no limit is that large."""


@dataclass(frozen=True)
class Limits:
    """What one request, and all of them together, may take: bytes, rows, cells of new rows, values of
    an answer (each takes some 50 bytes while it is written), characters of texts (one may become 18
    in its plain form)."""

    body: int = 16 * 2**20
    rows: int = 10_000
    cells: int = 5_000_000
    answer: int = 1_000_000
    letters: int = 500_000
    seconds: float = 30.0
    slow: float = 10.0
    together: int = 64


@dataclass(frozen=True)
class Reply:
    """What goes back to the caller."""

    content: bytes
    media: str = JSON
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: Problem) -> Reply:
        return cls(problem.body(), "application/problem+json", problem.status, problem.headers)


def as_problem(error: Problem | EckartError) -> Problem:
    """An error of eckart as a problem in its words."""
    if isinstance(error, Problem):
        return error
    return Problem(413 if isinstance(error, TooLarge) else 422, " ".join(str(error).split()))


class Gone(Exception):
    """The caller left before the request had come."""


class Service:
    """The application. Around everything: tokens, how many at once, problems as JSON, one line of
    log for each request, without data and ids."""

    def __init__(
        self,
        registry: ModelRegistry,
        limits: Limits,
        token: str | None,
        hosts: tuple[str, ...] = (),
    ):
        self.registry, self.limits, self.token, self.hosts = (
            registry,
            limits,
            token,
            AllowedHosts(hosts),
        )
        self.meter, self.together = Meter(), Together()
        self.threads = ThreadPoolExecutor(min(32, 4 + (os.cpu_count() or 1)), "eckart-answers")
        # one large body at a time is in memory as objects
        self.parser = ThreadPoolExecutor(1, "eckart-bodies")
        self.places = {
            "/health": self._health,
            "/ready": self._is_ready,
            "/metrics": self._metrics,
            "/v1/models": self._cards,
            "/openapi.json": self._description,
            "/docs": self._page,
        }
        self.ready = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._request(scope, receive, send)

    async def _live(self, receive: Any, send: Any) -> None:
        """Files are looked at from the start of the process to its end."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.registry.watch()
                await send({"type": "lifespan.startup.complete"})
            else:
                self.registry.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _request(self, scope: Any, receive: Any, send: Any) -> None:
        begin, status = time.perf_counter(), 499
        parts = scope["path"].split("/")
        verb = parts[-1] if parts[-1] in VERBS else "other"
        model = ""
        self.meter.busy += 1
        try:
            headers = dict(scope["headers"])
            try:
                check_source(
                    header_texts(scope), self.hosts, str(self.hosts), scope["method"] == "POST"
                )
                self._admit(scope["path"], headers)
                model, reply = await self._reply(scope, headers, parts, receive)
            except (Problem, EckartError) as error:
                model, reply = self._known(parts), Reply.of(as_problem(error))
            except Gone:
                return
            except Exception:
                log.exception("a bug in eckart")
                reply = Reply.of(Problem(500, "this is a bug in eckart; please report it"))
            status = reply.status
            header_value = [
                (b"content-length", b"%d" % len(reply.content)),
                (b"content-type", reply.media.encode()),
            ]
            header_value += [
                (name.encode(), value.encode("latin-1")) for name, value in reply.headers.items()
            ]
            await send({"type": "http.response.start", "status": status, "headers": header_value})
            await send({"type": "http.response.body", "body": reply.content})
        finally:
            self.meter.busy -= 1
            seconds = time.perf_counter() - begin
            self.meter.took(model, verb, status, seconds)
            if log.isEnabledFor(logging.INFO):
                line = {
                    "time": round(time.time(), 3),
                    "verb": verb,
                    "model": model,
                    "status": status,
                }
                log.info(json.dumps(line | {"ms": round(seconds * 1e3, 2)}))

    def _known(self, parts: list[str]) -> str:
        """The model of a path, where there is one of that name: other names are words of the
        caller, which logs do not hold."""
        return parts[3] if len(parts) == 5 and parts[3] in self.registry.served else ""

    def _admit(self, path: str, headers: dict[bytes, bytes]) -> None:
        if path in OPEN:
            return
        if self.token is not None:
            header_value = headers.get(b"authorization", b"")
            if not hmac.compare_digest(header_value, b"Bearer " + self.token.encode()):
                raise Problem(
                    401,
                    "the header 'authorization: Bearer TOKEN' with a valid token is needed",
                    {"www-authenticate": "Bearer"},
                )
        if self.meter.busy > self.limits.together:
            raise Problem(
                429,
                f"more than {self.limits.together} requests came at once; ask again in a second",
                {"retry-after": "1"},
            )

    async def _reply(
        self, scope: Any, headers: dict[bytes, bytes], parts: list[str], receive: Any
    ) -> tuple[str, Reply]:
        """The place that is asked, and its answer."""
        path, method = scope["path"], scope["method"]
        asks = len(parts) == 5 and path.startswith("/v1/models/") and bool(parts[3] and parts[4])
        card = len(parts) == 4 and path.startswith("/v1/models/") and bool(parts[3])
        if not (asks or card or path in self.places):
            places = (
                "/v1/models/NAME/VERB, /v1/models, /health, /ready, /metrics, /openapi.json or "
                "/docs"
            )
            raise Problem(404, f"the address must be {places}, got {method[:20]} {path[:200]}")
        allowed = ("POST",) if asks else ("GET", "HEAD")
        if method not in allowed:
            said = " or ".join(allowed)
            raise Problem(
                405,
                f"the address must be {said}, got {method[:20]} {path[:200]}",
                {"allow": ", ".join(allowed)},
            )
        if asks:
            return parts[3], await self._ask(
                parts[3], parts[4], scope["query_string"], headers, receive
            )
        return "", Reply(to_json(self.registry.named(parts[3]).card())) if card else self.places[
            path
        ]()

    async def _ask(
        self, name: str, verb: str, query: bytes, headers: dict[bytes, bytes], receive: Any
    ) -> Reply:
        if verb not in VERBS:
            raise Problem(404, f"verb must be one of {', '.join(VERBS)}, got {verb[:80]!r}")
        served = self.registry.named(name)
        body = await self._body(headers, receive)
        kind = (
            headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")
        )
        fields = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)) if query else {}
        read = partial(
            read_request, verb, kind, body, fields, hasattr(served.model, "recommend"), self.limits
        )
        small = len(body) < LARGE
        asked = (
            read() if small else await asyncio.get_running_loop().run_in_executor(self.parser, read)
        )
        if verb not in served.verbs:
            raise Problem(
                422,
                f"verb must be one of {', '.join(served.verbs)} for model {name!r} "
                f"({type(served.model).__name__}), got {verb!r}",
            )
        columns = await self._columns(served, asked)
        about = {"model": name, "version": served.version, "verb": verb}
        write = partial(written, headers.get(b"accept", b"").decode("latin-1"), about, columns)
        small = sum(map(len, columns.values())) < MANY_VALUES
        media, content = (
            write()
            if small
            else await asyncio.get_running_loop().run_in_executor(self.threads, write)
        )
        return Reply(content, media)

    async def _columns(self, served: Served, asked: Any) -> Any:
        try:
            at = self._rows_of_lists(served, asked)
            check_limits(served.model, asked, self.limits)
            if at is not None and len(at) <= TOGETHER:
                found = await self.together.best(served, at, asked.n, asked.exclude_seen)
                return found.to_table()
            if isinstance(asked, Recommend):
                asked = replace(asked, by=_by_of(served.model, asked))
            work: Any = partial(_columns_of, served.model, asked)
            if at is not None:
                work = partial(_lists, served, at, asked)
            working = asyncio.get_running_loop().run_in_executor(self.threads, work)
            return await asyncio.wait_for(working, self.limits.seconds)
        except TimeoutError:
            raise Problem(
                503,
                f"the answer took longer than {self.limits.seconds:g} s; ask for fewer rows",
                {"retry-after": "1"},
            ) from None
        except np.linalg.LinAlgError:
            raise Problem(
                422,
                "the numbers that came are too large or too alike to be worked with in "
                "64 bits; scale them",
            ) from None
        except (OverflowError, UnicodeError) as error:
            raise Problem(
                422,
                "values must be numbers of 64 bits and valid text, got one that no model can hold "
                f"({error})",
            ) from None

    @staticmethod
    def _rows_of_lists(served: Served, asked: Any) -> np.ndarray | None:
        """Positions of rows whose lists can be made together with those of other requests; None
        where the question is another."""
        if not isinstance(asked, Recommend) or served.lists is None:
            return None
        plain = asked.rows is not None and all(
            value is None for value in (asked.X, asked.candidates, asked.exclude)
        )
        if not plain or asked.min_support or _by_of(served.model, asked) != "prediction":
            return None
        row_ids = served.lists.row_ids
        return row_ids.indices_of(ids_of(asked.rows, row_ids))

    async def _body(self, headers: dict[bytes, bytes], receive: Any) -> bytes:
        """All of the body: no more than the limit, and no slower."""
        header_value, most = headers.get(b"content-length", b""), self.limits.body
        if header_value.isdigit() and (len(header_value) > MOST_DIGITS or int(header_value) > most):
            raise Problem(
                413,
                f"a body must have at most {most:,} bytes, got {header_value[:30].decode()}. Send it in "
                "parts.",
            )
        parts, size, more = [], 0, True
        try:
            async with asyncio.timeout(self.limits.slow):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Gone
                    part, more = message.get("body", b""), message.get("more_body", False)
                    parts.append(part)
                    size += len(part)
                    if size > most:
                        raise Problem(
                            413, f"a body of more than {most:,} bytes came; send it in parts"
                        )
        except TimeoutError:
            raise Problem(
                408,
                f"the body did not come within {self.limits.slow:g} s; send it faster or in parts",
                {"connection": "close"},
            ) from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _cards(self) -> Reply:
        return Reply(to_json({"models": self.registry.cards()}))

    def _health(self) -> Reply:
        return Reply(b'{"status":"alive"}')

    def _is_ready(self) -> Reply:
        if not self.ready:
            raise Problem(503, "the models are being loaded; ask again", {"retry-after": "1"})
        return Reply(to_json({"status": "ready", "refused": len(self.registry.refused)}))

    def _metrics(self) -> Reply:
        return Reply(self.meter.text(self.registry).encode(), "text/plain; charset=utf-8")

    def _description(self) -> Reply:
        return Reply(to_json(openapi(__version__, tuple(self.registry.paths))))

    def _page(self) -> Reply:
        from eckart.serve.page import page

        head = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return Reply(
            page(openapi(__version__, tuple(self.registry.paths))).encode(),
            "text/html; charset=utf-8",
            headers=head,
        )


def _by_of(model: Any, asked: Recommend) -> str:
    """What "auto" stands for: the order by chance where the model file holds it. It is never
    learned while someone waits."""
    if asked.by != "auto":
        return asked.by
    demand = getattr(model, "_demand", None)
    return "chance" if demand is not None and demand.informative else "prediction"


def _columns_of(model: Any, asked: Any) -> Any:
    return answer(model, asked).columns


def _lists(served: Served, at: np.ndarray, asked: Any) -> Any:
    assert served.lists is not None
    return served.lists.best(at, asked.n, asked.exclude_seen).to_table()


def application(
    paths: dict[str, Path],
    limits: Limits | None = None,
    token: str | None = None,
    hosts: tuple[str, ...] = (),
    copies: Path | None = None,
) -> Service:
    """The ASGI application that serves these model files by name, to callers that name this machine
    or one of ``hosts``."""
    service = Service(ModelRegistry(paths, copies), limits or Limits(), token, hosts)
    service.registry.load()
    service.ready = True
    return service
