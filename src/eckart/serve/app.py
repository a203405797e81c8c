"""The service as an ASGI application: routes, limits, tokens, metrics and logs. It holds no data of a request longer than the request."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from eckart import __version__
from eckart.errors import EckartError
from eckart.serve.answers import answer, listed, quick
from eckart.serve.bodies import JSON, read_request, to_json, written
from eckart.serve.lists import TOGETHER
from eckart.serve.models import Served, Shelf
from eckart.serve.problems import Problem
from eckart.serve.schema import VERBS, openapi

log = logging.getLogger("eckart.serve")
EDGES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper edges of the histogram of seconds."""
OPEN = ("/health", "/ready")
"""Places that need no token: they tell nothing."""


@dataclass(frozen=True)
class Limits:
    """What one request, and all of them together, may take."""

    body: int = 16 * 2**20
    rows: int = 10_000
    cells: int = 20_000_000
    seconds: float = 30.0
    slow: float = 10.0
    together: int = 64


class Meter:
    """Counts and times for Prometheus, of this process."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, int], int] = defaultdict(int)
        self.times: dict[str, list[int]] = defaultdict(lambda: [0] * (len(EDGES) + 1))
        self.total: dict[str, float] = defaultdict(float)
        self.busy = 0

    def took(self, model: str, verb: str, status: int, seconds: float) -> None:
        self.requests[model, verb, status] += 1
        self.times[verb][int(np.searchsorted(EDGES, seconds))] += 1
        self.total[verb] += seconds

    def text(self, shelf: Shelf) -> str:
        lines = ["# TYPE eckart_requests_total counter"]
        lines += [
            f'eckart_requests_total{{model="{m}",verb="{v}",status="{s}"}} {c}'
            for (m, v, s), c in sorted(self.requests.items())
        ]
        lines.append("# TYPE eckart_request_seconds histogram")
        for verb, counts in sorted(self.times.items()):
            below = np.cumsum(counts).tolist()
            lines += [
                f'eckart_request_seconds_bucket{{verb="{verb}",le="{edge}"}} {c}'
                for edge, c in zip([*EDGES, "+Inf"], below)
            ]
            lines += [
                f'eckart_request_seconds_sum{{verb="{verb}"}} {self.total[verb]:.6f}',
                f'eckart_request_seconds_count{{verb="{verb}"}} {below[-1]}',
            ]
        rest = (
            ("requests_busy", "gauge", self.busy),
            ("model_swaps_total", "counter", shelf.swaps),
            ("models_refused", "gauge", len(shelf.refused)),
        )
        for name, kind, value in rest:
            lines += [f"# TYPE eckart_{name} {kind}", f"eckart_{name} {value}"]
        return "\n".join(lines) + "\n"


class Together:
    """Requests for lists that wait at the same moment are answered by one product (see ``lists``)."""

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
                found = group[0][0].lists.best(np.concatenate([at for _, at, *_ in group]), n, exclude_seen)  # type: ignore[union-attr]
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


class Service:
    """What the routes share."""

    def __init__(self, shelf: Shelf, limits: Limits, token: str | None):
        self.shelf, self.limits, self.token = shelf, limits, token
        self.meter, self.together = Meter(), Together()
        self.ready = False

    async def ask(self, request: Request) -> Response:
        name, verb = request.path_params["name"], request.path_params["verb"]
        if verb not in VERBS:
            raise Problem(404, f"verb {verb[:80]!r} came, wanted one of {', '.join(VERBS)}")
        served = self.shelf.named(name)
        request.state.served = name
        body = await self._body(request)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        asked = read_request(verb, kind, body, request.query_params, hasattr(served.model, "recommend"))
        columns = await self._columns(served, verb, asked)
        about = {"model": name, "version": served.version, "verb": verb}
        media, content = written(request.headers.get("accept", ""), about, columns)
        return Response(content, media_type=media)

    async def _columns(self, served: Served, verb: str, asked: Any) -> Any:
        try:
            at = quick(served, verb, asked)
            if at is not None and len(at) <= TOGETHER:
                return listed(await self.together.best(served, at, asked.n, asked.exclude_seen))
            work = partial(answer, served, verb, asked, self.limits)
            if at is not None and len(at) <= self.limits.rows:
                work = partial(_lists, served, at, asked)
            return await asyncio.wait_for(run_in_threadpool(work), self.limits.seconds)
        except TimeoutError:
            raise Problem(
                503, f"the answer took longer than {self.limits.seconds:g} s; ask for fewer rows", {"retry-after": "1"}
            ) from None
        except EckartError as error:
            raise Problem(422, " ".join(str(error).split())) from None
        except (OverflowError, UnicodeError) as error:
            raise Problem(
                422, f"a value came that no model can hold ({error}); wanted numbers of 64 bits and valid text"
            ) from None

    async def _body(self, request: Request) -> bytes:
        """All of the body: no more than the limit, and no slower."""
        told = request.headers.get("content-length", "")
        if told.isdigit() and int(told) > self.limits.body:
            raise Problem(
                413, f"a body of {int(told):,} bytes came, wanted at most {self.limits.body:,}; send it in parts"
            )

        async def read() -> bytes:
            parts, size = [], 0
            async for part in request.stream():
                parts.append(part)
                size += len(part)
                if size > self.limits.body:
                    raise Problem(413, f"a body of more than {self.limits.body:,} bytes came; send it in parts")
            return b"".join(parts)

        try:
            return await asyncio.wait_for(read(), self.limits.slow)
        except TimeoutError:
            raise Problem(
                408,
                f"the body did not come within {self.limits.slow:g} s; send it faster or in parts",
                {"connection": "close"},
            ) from None

    async def cards(self, request: Request) -> Response:
        return Response(to_json({"models": self.shelf.cards()}), media_type=JSON)

    async def card(self, request: Request) -> Response:
        return Response(to_json(self.shelf.named(request.path_params["name"]).card()), media_type=JSON)

    async def health(self, request: Request) -> Response:
        return Response(b'{"status":"alive"}', media_type=JSON)

    async def is_ready(self, request: Request) -> Response:
        if not self.ready:
            raise Problem(503, "the models are being loaded; ask again", {"retry-after": "1"})
        return Response(b'{"status":"ready"}', media_type=JSON)

    async def metrics(self, request: Request) -> Response:
        return PlainTextResponse(self.meter.text(self.shelf))

    async def description(self, request: Request) -> Response:
        return Response(to_json(openapi(__version__)), media_type=JSON)

    async def page(self, request: Request) -> Response:
        from eckart.serve.page import page

        head = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return HTMLResponse(page(openapi(__version__)), headers=head)


class Guard:
    """Around everything: tokens, how many at once, problems as JSON, one line of log for each request. Logs hold no data and no ids."""

    def __init__(self, app: Any, service: Service):
        self.app, self.service, self.shelf = app, service, service.shelf

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        service, begin, status = self.service, time.perf_counter(), 0
        scope.setdefault("state", {})

        async def counted(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        service.meter.busy += 1
        try:
            try:
                self._admit(scope)
                await self.app(scope, receive, counted)
            except Problem as problem:
                await _refuse(problem, scope, receive, counted)
            except ClientDisconnect:
                status = 499
            except Exception:  # told to the caller already; the log has the lines that lead to it
                log.exception("a bug in eckart")
        finally:
            service.meter.busy -= 1
            seconds = time.perf_counter() - begin
            parts = scope["path"].split("/")
            verb = parts[-1] if parts[-1] in VERBS else "other"
            model = str(scope["state"].get("served", ""))
            service.meter.took(model, verb, status, seconds)
            if log.isEnabledFor(logging.INFO):
                told = {
                    "time": round(time.time(), 3),
                    "verb": verb,
                    "model": model,
                    "status": status,
                    "ms": round(seconds * 1e3, 2),
                }
                log.info(json.dumps(told))

    def _admit(self, scope: Any) -> None:
        service = self.service
        if scope["path"] in OPEN:
            return
        if service.token is not None:
            told = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(told, b"Bearer " + service.token.encode()):
                raise Problem(
                    401,
                    "no valid token came, wanted the header 'authorization: Bearer TOKEN'",
                    {"www-authenticate": "Bearer"},
                )
        if service.meter.busy > service.limits.together:
            raise Problem(
                429,
                f"more than {service.limits.together} requests came at once; ask again in a second",
                {"retry-after": "1"},
            )


def _lists(served: Served, at: np.ndarray, asked: Any) -> Any:
    assert served.lists is not None
    return listed(served.lists.best(at, asked.n, asked.exclude_seen))


async def _refuse(problem: Problem, scope: Any, receive: Any, send: Any) -> None:
    await _told(problem)(scope, receive, send)


def _told(problem: Problem) -> Response:
    return Response(problem.body(), problem.status, problem.headers, "application/problem+json")


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return _told(error)


async def _bug(request: Request, error: Exception) -> Response:
    return _told(Problem(500, "this is a bug in eckart; please report it"))


async def _elsewhere(request: Request, error: Exception) -> Response:
    said = f"{request.method[:20]} {request.url.path[:200]} came"
    if getattr(error, "status_code", 404) == 405:
        allowed = dict(getattr(error, "headers", None) or {}).get("Allow", "another method")
        return _told(Problem(405, f"{said}, wanted {allowed}", {"allow": allowed}))
    return _told(
        Problem(
            404, f"{said}, wanted /v1/models/NAME/VERB, /v1/models, /health, /ready, /metrics, /openapi.json or /docs"
        )
    )


def application(paths: dict[str, Path], limits: Limits | None = None, token: str | None = None) -> Any:
    """The ASGI application that serves these model files by name."""
    shelf = Shelf(paths)
    service = Service(shelf, limits or Limits(), token)
    shelf.load()
    service.ready = True

    @asynccontextmanager
    async def life(app: Any) -> Any:
        shelf.watch()
        yield
        shelf.stop()

    routes = [
        Route("/v1/models/{name}/{verb}", service.ask, methods=["POST"]),
        Route("/v1/models/{name}", service.card, methods=["GET"]),
        Route("/v1/models", service.cards, methods=["GET"]),
        Route("/health", service.health, methods=["GET"]),
        Route("/ready", service.is_ready, methods=["GET"]),
        Route("/metrics", service.metrics, methods=["GET"]),
        Route("/openapi.json", service.description, methods=["GET"]),
        Route("/docs", service.page, methods=["GET"]),
    ]
    app = Starlette(
        routes=routes,
        lifespan=life,
        exception_handlers={Problem: _problem, 404: _elsewhere, 405: _elsewhere, Exception: _bug},
    )
    app.router.redirect_slashes = False
    return Guard(app, service)
