"""The service as a process: uvicorn with slow clients cut, TLS by files, workers that share the
mapped models, and a drain before it ends."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eckart.errors import InputError, MissingError
from eckart.loading import delay

ENVIRONMENT = "ECKART_SERVE"
"""How worker processes learn what to serve; the token travels by its file, never by this."""


def serve(
    paths: dict[str, Path],
    *,
    host: str,
    port: int,
    limits: Any,
    token_file: Path | None,
    workers: int,
    tls: tuple[Path, Path] | None,
    drain: int,
    hosts: tuple[str, ...] = (),
) -> None:
    """Serve until SIGTERM or SIGINT; requests that are being answered then have ``drain``
    seconds."""
    try:
        import uvicorn
    except ImportError:
        raise MissingError(
            "serving needs uvicorn and httptools, which are not installed; pip install "
            "'eckart[serve]'"
        ) from None
    copies = (
        tempfile.TemporaryDirectory(prefix="eckart-serve-") if workers > 1 else nullcontext(None)
    )
    settings = {
        "paths": {name: str(path) for name, path in paths.items()},
        "limits": asdict(limits),
        "token_file": None if token_file is None else str(token_file),
        "hosts": list(hosts),
    }
    more: dict[str, Any] = (
        {} if tls is None else {"ssl_certfile": str(tls[0]), "ssl_keyfile": str(tls[1])}
    )
    from eckart.serve.slow import Prompt

    with copies as folder:
        os.environ[ENVIRONMENT] = json.dumps(settings | {"copies": folder})
        uvicorn.run(
            "eckart.serve.run:from_environment" if workers > 1 else from_environment(),
            factory=workers > 1,
            host=host,
            port=port,
            workers=workers,
            http=Prompt,
            ws="none",
            access_log=False,
            log_level="warning",
            timeout_graceful_shutdown=drain,
            timeout_keep_alive=30,
            server_header=False,
            backlog=512,
            **more,
        )


def from_environment() -> Any:
    """The application of one worker."""
    delay()
    import scipy.linalg  # noqa: F401  (its BLAS must be loaded to be limited)
    from threadpoolctl import threadpool_limits

    from eckart.serve.app import Limits, application

    logging.basicConfig(format="%(message)s")
    logging.getLogger("eckart.serve").setLevel(os.environ.get("ECKART_LOG", "INFO").upper())
    threadpool_limits(
        1, user_api="blas"
    )  # requests run beside one another; threads inside of each would only get in their way
    settings = json.loads(os.environ[ENVIRONMENT])
    token = None if settings["token_file"] is None else read_token(Path(settings["token_file"]))
    paths = {name: Path(path) for name, path in settings["paths"].items()}
    return application(
        paths,
        Limits(**settings["limits"]),
        token,
        tuple(settings["hosts"]),
        settings["copies"] and Path(settings["copies"]),
    )


def read_token(file: Path) -> str:
    """The token in a file."""
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--token-file {file} cannot be read: {error}") from None
    if len(token) < 16:
        raise InputError(
            f"the token of --token-file {file} must have at least 16 characters, such as what "
            f"'openssl rand -hex 32' prints, got {len(token)}"
        )
    return token
