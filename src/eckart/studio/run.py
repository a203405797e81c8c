"""The studio as a process: a port of this machine, a token, and a browser that is opened with a
ticket that is good once."""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from eckart.errors import InputError, MissingError
from eckart.studio.folder import Folder

HOST, USUAL_PORT = "127.0.0.1", 8877


def run_studio(
    place: Path, port: int | None, browser: bool, say: Callable[[str, str], None]
) -> None:
    """Serve until Ctrl-C or SIGTERM; jobs that run then are asked to stop, and keep their state."""
    try:
        import uvicorn

        from eckart.studio.app import application
    except ImportError as error:
        raise MissingError(
            f"the studio needs {error.name}, which is not installed; pip install 'eckart[studio]'"
        ) from None
    logging.basicConfig(format="%(message)s")  # what leads to an answer of 500 stands in the shell
    folder = Folder.of(place)
    held = listening(port)
    port = int(held.getsockname()[1])
    token = secrets.token_urlsafe(32)
    names = ("127.0.0.1", "localhost", "[::1]")
    app = application(folder, token, [f"{name}:{port}" for name in names], f"eckart-{port}")
    address = f"http://{HOST}:{port}/#token="
    say("studio", f"{address}{token}")
    say("folder", f"{folder.root}; stop with Ctrl-C")
    if browser:
        ticket = secrets.token_urlsafe(32)
        app.keys.tickets.add(ticket)
        threading.Timer(
            0.5, webbrowser.open, [address + ticket]
        ).start()  # the port listens already: the page waits for the server
    config = uvicorn.Config(
        app,
        http="h11",  # it cuts heads above 64 KiB, which come before a token is asked for
        ws="none",
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=3,
        server_header=False,
        lifespan="on",
    )

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:
            app.closing.set()  # streams of events end themselves
            super().handle_exit(sig, frame)

    threading.Thread(target=_get_ready, daemon=True).start()
    Server(config).run(sockets=[held])


def _get_ready() -> None:
    """Load what the first model will need, while the page is being looked at."""
    for name in (
        "eckart.reduce.pca",
        "eckart.complete.factors.als",
        "eckart.explain.topics.lda",
        "eckart.embed.pmi",
        "numba",
        "matplotlib.path",
    ):
        with contextlib.suppress(ImportError):
            import_module(name)


def listening(port: int | None) -> socket.socket:
    """A socket of this machine: the usual port or, where it is taken, any; a port that was asked
    for must be free."""
    for wanted in [USUAL_PORT, 0] if port is None else [port]:
        # The protocol is said so that asyncio knows it for TCP and sends at once: head and body of
        # an answer are two packets, and the second would wait 40 ms.
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind((HOST, wanted))
            held.listen(128)
            return held
        except OSError as error:
            held.close()
            reason: Any = error.strerror
        except OverflowError:
            held.close()
            reason = "must be 0 to 65535"
    raise InputError(
        f"--port {port} cannot be used: {reason}; leave it out to have a free one chosen"
    )
