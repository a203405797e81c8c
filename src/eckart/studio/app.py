"""The studio over HTTP, for one person on one machine: the page and its files, questions, jobs with
their events, files in and out.

Who may ask is decided by ``guard``. The page runs no script but its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from eckart.serve.problems import Problem
from eckart.studio.answers import Studio
from eckart.studio.asks import Answer, Ask, as_json, events_line
from eckart.studio.folder import UPLOADS, Folder
from eckart.studio.forms import words_of
from eckart.studio.guard import Guard, Keys, refusal
from eckart.studio.jobs import ENDED
from eckart.studio.plans import plan

WEB = Path(__file__).parent / "web"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: "
    "blob:; connect-src 'self'; worker-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src "
    "'unsafe-inline'; img-src data:; base-uri 'none'"
)
"""A report is a file like any other: it may draw, in an origin of its own, and reach nothing."""
MOST_BODY = 64 * 2**20
"""Bytes of a question: a selection of a million positions fits."""
MOST_TOKEN = 4096
"""Bytes of what anyone on this machine may send before a token was seen."""
MOST_UPLOAD = 4 * 2**30
"""Bytes of a file that the page sends: a larger one is quicker copied into the folder, as its
refusal says."""
KEEP_ALIVE, LOOK_EVERY = 15.0, 1.0
"""Seconds between signs of life of a stream of events, and between looks at the folder."""


class Handlers:
    """What the routes share."""

    def __init__(self, studio: Studio, keys: Keys):
        self.studio, self.keys = studio, keys
        self.closing = threading.Event()

    # the page

    async def page(self, request: Request) -> Response:
        return self._file("index.html", request)

    async def web(self, request: Request) -> Response:
        return self._file(request.path_params["name"], request)

    def _file(self, name: str, request: Request) -> Response:
        path = WEB / name if "\0" in name else (WEB / name).resolve()
        if (
            "\0" in name
            or not path.is_relative_to(WEB.resolve())
            or path.suffix not in KINDS
            or not path.is_file()
        ):
            raise Problem(404, f"/web/{name[:200]} came, which is no file of the page")
        content = path.read_bytes()
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        head = {"etag": tag, "cache-control": "no-cache", "content-security-policy": POLICY}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=head)
        return Response(content, media_type=KINDS[path.suffix], headers=head)

    async def session(self, request: Request) -> Response:
        given = (
            Ask.of_body(
                request.headers.get("content-type", ""), await self._body(request, MOST_TOKEN)
            ).text("token", "")
            or ""
        )
        if not self.keys.redeem(given):
            raise Problem(
                401,
                "a token came that is not this studio's; open the address that eckart "
                "studio printed",
            )
        response = Response(status_code=204)
        response.set_cookie(
            self.keys.cookie, self.keys.token, httponly=True, samesite="strict", path="/"
        )
        return response

    # questions

    async def ask(self, request: Request) -> Response:
        if request.method in ("GET", "HEAD"):
            ask = Ask.of_query(parse_qsl(request.url.query, keep_blank_values=True))
        else:
            ask = Ask.of_body(request.headers.get("content-type", ""), await self._body(request))
        method = "GET" if request.method == "HEAD" else request.method
        return _sent(
            await run_in_threadpool(self.studio.answer, method, request.path_params["place"], ask)
        )

    async def plan(self, request: Request) -> Response:
        ask = Ask.of_body(request.headers.get("content-type", ""), await self._body(request))
        words = words_of(
            ask.raw("verb"), ask.raw("file"), ask.raw("options") or {}, self.studio.folder
        )
        gone = threading.Event()
        work = asyncio.ensure_future(run_in_threadpool(plan, words, self.studio.folder.root, gone))
        while not work.done():
            await asyncio.wait({work}, timeout=0.25)
            if await request.is_disconnected():
                gone.set()
        if gone.is_set():
            raise ClientDisconnect()
        return _sent(as_json(work.result()))

    # jobs

    async def job(self, request: Request) -> Response:
        jobs, id = self.studio.jobs, request.path_params["id"]
        if request.method == "DELETE":
            await run_in_threadpool(jobs.forget, id)
            return Response(status_code=204)
        return _sent(as_json(jobs.named(id).to_json()))

    async def stop(self, request: Request) -> Response:
        return await self._done(request, self.studio.jobs.stop)

    async def resume(self, request: Request) -> Response:
        return await self._done(request, self.studio.jobs.resume)

    async def _done(self, request: Request, do: Any) -> Response:
        Ask.of_body(request.headers.get("content-type", ""), await self._body(request) or b"{}")
        return _sent(as_json((await run_in_threadpool(do, request.path_params["id"])).to_json()))

    async def job_events(self, request: Request) -> Response:
        job = self.studio.jobs.named(request.path_params["id"])
        return self._stream(self._events(job.id))

    async def all_events(self, request: Request) -> Response:
        return self._stream(self._events(None))

    def _stream(self, events: AsyncIterator[bytes]) -> Response:
        return StreamingResponse(
            events, media_type="text/event-stream", headers={"x-accel-buffering": "no"}
        )

    async def _events(self, only: str | None) -> AsyncIterator[bytes]:
        jobs = self.studio.jobs
        me = jobs.listen()
        seen, spoken = await run_in_threadpool(self.studio.folder.mark), time.monotonic()
        try:
            if only is None:
                yield b": the studio's events\n\n"
            else:
                job = jobs.named(only)
                yield events_line("job", job.to_json())
                if job.state in ENDED:
                    yield events_line(job.state, job.to_json())
                    return
            while not self.closing.is_set():
                try:
                    id, kind, event = await asyncio.wait_for(me[1].get(), LOOK_EVERY)
                except TimeoutError:
                    if (
                        only is None
                        and (now := await run_in_threadpool(self.studio.folder.mark)) != seen
                    ):
                        seen = now
                        yield events_line("folder", {})
                    elif time.monotonic() - spoken > KEEP_ALIVE:
                        spoken = time.monotonic()
                        yield b": here\n\n"
                    continue
                if only is None:
                    yield events_line(kind, {"id": id} | event)
                elif id == only:
                    yield events_line(kind, event)
                    if kind in ENDED:
                        return
        finally:
            jobs.leave(me)

    # files

    async def upload(self, request: Request) -> Response:
        name = Ask.of_query(parse_qsl(request.url.query)).text("name", "") or ""
        folder = self.studio.folder
        if "/" in name or not name.lower().endswith(UPLOADS):
            raise Problem(
                422,
                f"name must be a file name that ends in {', '.join(UPLOADS)}, got {name[:80]!r}",
            )
        target = folder.inside(name, "name")
        if target.exists():
            raise Problem(
                409,
                f"{name[:80]} is in the folder already; rename the file, or the one that is there",
            )
        from eckart.io.models.whole_files import replacing

        size = 0
        with replacing(target) as place:
            with open(place, "wb") as out:
                async for part in request.stream():
                    size += len(part)
                    if size > MOST_UPLOAD:
                        raise Problem(
                            413,
                            f"more than {MOST_UPLOAD:,} bytes came; copy the file into "
                            "the folder instead",
                        )
                    await run_in_threadpool(out.write, part)
            if not size:
                raise Problem(
                    422, f"{name[:80]} must be a file with content, got an empty one (0 bytes)"
                )
            if target.exists():
                raise Problem(409, f"{name[:80]} came into the folder meanwhile; rename the file")
        return _sent(as_json({"file": name}, 201))

    async def report(self, request: Request) -> Response:
        path = self._plain_file(request)
        if path.suffix.lower() not in (".html", ".htm"):
            raise Problem(422, f"the file must be a report (.html), got {path.name}")
        return FileResponse(
            path,
            media_type="text/html; charset=utf-8",
            headers={"content-security-policy": REPORT_POLICY},
        )

    async def download(self, request: Request) -> Response:
        path = self._plain_file(request)
        head = {
            "content-disposition": f"attachment; filename*=UTF-8''{quote(path.name)}",
            "content-security-policy": "sandbox; default-src 'none'",
        }
        return FileResponse(path, media_type="application/octet-stream", headers=head)

    def _plain_file(self, request: Request) -> Path:
        name = Ask.of_query(parse_qsl(request.url.query)).text("file")
        path = self.studio.folder.existing(name)
        if not path.is_file():
            raise Problem(422, f"the name must be that of a file, got {path.name}")
        return path

    async def _body(self, request: Request, most: int = MOST_BODY) -> bytes:
        parts, size = [], 0
        async for part in request.stream():
            parts.append(part)
            size += len(part)
            if size > most:
                raise Problem(413, f"a body of more than {most:,} bytes came; ask for less")
        return b"".join(parts)


def application(folder: Folder, token: str, hosts: Any, cookie: str = "eckart") -> Guard:
    """The ASGI application over a folder."""
    keys = Keys(token, frozenset(hosts), cookie)
    handlers = Handlers(Studio(folder), keys)

    @asynccontextmanager
    async def life(app: Any) -> Any:
        yield
        await run_in_threadpool(handlers.studio.jobs.close)

    get, post = partial(Route, methods=["GET"]), partial(Route, methods=["POST"])
    routes = [
        get("/", handlers.page),
        get("/web/{name:path}", handlers.web),
        post("/api/session", handlers.session),
        post("/api/plan", handlers.plan),
        post("/api/upload", handlers.upload),
        get("/api/report", handlers.report),
        get("/api/download", handlers.download),
        get("/api/events", handlers.all_events),
        Route("/api/jobs/{id}", handlers.job, methods=["GET", "DELETE"]),
        get("/api/jobs/{id}/events", handlers.job_events),
        post("/api/jobs/{id}/stop", handlers.stop),
        post("/api/jobs/{id}/resume", handlers.resume),
        Route("/api/{place:path}", handlers.ask, methods=["GET", "POST"]),
    ]
    app = Starlette(
        routes=routes,
        lifespan=life,
        exception_handlers={404: _elsewhere, 405: _elsewhere, Problem: _refused, Exception: _bug},
    )
    app.router.redirect_slashes = False
    return Guard(app, keys, handlers.studio, handlers.closing)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return refusal(error)


async def _bug(request: Request, error: Exception) -> Response:
    return refusal(Problem(500, "this is a bug in eckart; please report it"))


async def _elsewhere(request: Request, error: Exception) -> Response:
    status = 405 if getattr(error, "status_code", 404) == 405 else 404
    return refusal(
        Problem(
            status,
            f"{request.method[:20]} {request.url.path[:200]} came, which is no place of the studio",
        )
    )


def _sent(answer: Answer) -> Response:
    if isinstance(answer.content, bytes):
        return Response(answer.content, answer.status, answer.headers, answer.kind)
    return StreamingResponse(answer.content, answer.status, answer.headers, answer.kind)
