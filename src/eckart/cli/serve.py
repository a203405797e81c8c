"""eckart serve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eckart.errors import FileError, InputError, MissingError, invalid

File = Annotated[
    Path | None, typer.Argument(help="A saved model; it is served by the name of its file.")
]
Named = Annotated[
    list[str] | None,
    typer.Option("--model", help="name=path of a saved model; may be given several times."),
]
Host = Annotated[
    str,
    typer.Option(help="The address to listen on; others than those of this machine want a token."),
]
Port = Annotated[int, typer.Option(help="The port to listen on.")]
Workers = Annotated[
    int, typer.Option(help="Processes that answer; they share the memory of the models.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        help="A file with the token that callers must send as 'authorization: Bearer TOKEN'."
    ),
]
NoToken = Annotated[
    bool,
    typer.Option(
        "--no-token",
        help="Listen on other addresses without a token, as behind a proxy that asks for one.",
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        help="A name by which callers may reach the service, beside addresses and this "
        "machine's own names; * for any."
    ),
]
Certificate = Annotated[
    Path | None, typer.Option(help="Certificate for TLS (.pem); wants --tls-key.")
]
Key = Annotated[Path | None, typer.Option(help="Key for TLS (.pem).")]
Body = Annotated[int, typer.Option(help="Most bytes of a request.")]
Rows = Annotated[int, typer.Option(help="Most rows of a request.")]
Answer = Annotated[int, typer.Option(help="Most numbers and texts of an answer.")]
Seconds = Annotated[float, typer.Option(help="Most seconds of an answer.")]
Slow = Annotated[float, typer.Option(help="Seconds within which a request must have come.")]
Together = Annotated[
    int,
    typer.Option(help="Most requests at once, in each process; more get the answer to ask again."),
]
Drain = Annotated[int, typer.Option(help="Seconds that requests have to end after SIGTERM.")]
HERE = ("127.0.0.1", "::1", "localhost")


def serve(
    file: File = None,
    model: Named = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    workers: Workers = 1,
    token_file: TokenFile = None,
    no_token: NoToken = False,
    allow_host: AllowHost = None,
    tls_certificate: Certificate = None,
    tls_key: Key = None,
    max_body: Body = 16 * 2**20,
    max_rows: Rows = 10_000,
    max_answer: Answer = 1_000_000,
    max_seconds: Seconds = 30.0,
    slow: Slow = 10.0,
    max_requests: Together = 64,
    drain: Drain = 20,
) -> None:
    """Answer questions to saved models over HTTP: recommend, predict, transform, similar, explain,
    neighbours, analogy, impute, certify.

    Listens on this machine only unless --host says otherwise, which wants a token. A model file
    that is replaced (eckart writes files so) is taken in without dropping a request; one that was
    tampered with is refused, and the one of before stays. Places: /docs, /openapi.json, /v1/models,
    /health, /ready, /metrics.

    Examples:

        eckart serve m.safetensors

        eckart serve --model films=m.safetensors --model words=v.safetensors --port 9000 --workers 2

        eckart serve m.safetensors --host 0.0.0.0 --token-file token.txt --tls-certificate cert.pem
        --tls-key key.pem
    """
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("uvicorn", "httptools")):
        raise MissingError(
            "serving needs uvicorn and httptools, which are not installed; pip install "
            "'eckart[serve]'"
        )
    from eckart.serve.app import Limits
    from eckart.serve.run import read_token
    from eckart.serve.run import serve as run

    paths = _paths(file, model or [])
    for name, value in (
        ("--workers", workers),
        ("--max-body", max_body),
        ("--max-rows", max_rows),
        ("--max-answer", max_answer),
        ("--max-requests", max_requests),
    ):
        if value < 1:
            raise invalid(name, value, "a number of 1 or more")
    for name, seconds in (("--max-seconds", max_seconds), ("--slow", slow)):
        if not seconds > 0:
            raise invalid(name, seconds, "seconds above 0")
    if (tls_certificate is None) != (tls_key is None):
        raise InputError("--tls-certificate and --tls-key go together, got one of them")
    if token_file is not None:
        read_token(token_file)
    elif host not in HERE and not no_token:
        raise InputError(
            f"--host {host} needs --token-file (or --no-token behind a proxy that asks for one)"
        )
    typer.echo(
        f"{'serving':<10} {', '.join(paths)} at "
        f"{'https' if tls_key else 'http'}://{host}:{port}, see /docs; stop with Ctrl-C"
    )
    limits = Limits(
        body=max_body,
        rows=max_rows,
        answer=max_answer,
        seconds=max_seconds,
        slow=slow,
        together=max_requests,
    )
    tls = None if tls_certificate is None or tls_key is None else (tls_certificate, tls_key)
    run(
        paths,
        host=host,
        port=port,
        limits=limits,
        token_file=token_file,
        workers=workers,
        tls=tls,
        drain=drain,
        hosts=tuple(allow_host or ()),
    )


def _paths(file: Path | None, named: list[str]) -> dict[str, Path]:
    found: dict[str, Path] = {} if file is None else {file.stem: file}
    for one in named:
        name, mark, path = one.partition("=")
        if (
            not mark
            or not path
            or not name.replace("-", "").replace("_", "").replace(".", "").isalnum()
        ):
            raise InputError(
                "--model must be name=path, such as films=m.safetensors, with a name of letters, "
                f"digits, '-', '_' and '.', got {one}"
            )
        if name in found:
            raise InputError(f"model names must differ, got {name!r} twice")
        found[name] = Path(path)
    if not found:
        raise InputError("a model must be given, a file or --model name=path, got none")
    for path in found.values():
        if not path.is_file():
            raise FileError(f"{path} does not exist or is not a file")
    return found
