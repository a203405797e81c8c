"""A PostgreSQL server of a test's own, in a temporary folder, where the programs are installed."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def program(name: str) -> str | None:
    """The path of one of PostgreSQL's programs, which Debian keeps off the search path."""
    return shutil.which(name) or next(
        iter(sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), reverse=True)), None
    )


def _user() -> str | None:
    """PostgreSQL refuses to run as root; someone else does it then."""
    if os.geteuid() != 0:
        return None
    return next((u.pw_name for u in pwd.getpwall() if u.pw_name in ("postgres", "nobody")), None)


@contextmanager
def server() -> Iterator[str]:
    """The address of a server that lives as long as the block."""
    folder = Path(tempfile.mkdtemp(prefix="eckart-pg-"))
    user = _user()
    how = (
        {}
        if user is None
        else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
    )
    if user is not None:
        shutil.chown(folder, user)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"HOME": str(folder), "LC_ALL": "C"}
    subprocess.run(
        [
            str(program("initdb")),
            "-D",
            str(folder / "data"),
            "-U",
            "tester",
            "-A",
            "trust",
            "-N",
            "-E",
            "UTF8",
        ],
        check=True,
        capture_output=True,
        env=environment,
        cwd=folder,
        **how,
    )
    running = subprocess.Popen(
        [
            str(program("postgres")),
            "-D",
            str(folder / "data"),
            "-p",
            str(port),
            "-h",
            "127.0.0.1",
            "-k",
            str(folder),
            "-F",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd=folder,
        **how,
    )
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        time.sleep(0.2)
        yield f"postgresql://tester@127.0.0.1:{port}/postgres"
    finally:
        running.send_signal(signal.SIGINT)  # without waiting for clients
        running.wait(20)
        shutil.rmtree(folder, ignore_errors=True)
