"""A MariaDB (or MySQL) server of a test's own, in a temporary folder, where the programs are
installed."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def program(name: str) -> str | None:
    """The path of one of MariaDB's programs, which may stand where only the administrator looks."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/sbin")


def _user() -> str | None:
    """As root the server wants another user to run as."""
    if os.geteuid() != 0:
        return None
    return next((u.pw_name for u in pwd.getpwall() if u.pw_name in ("mysql", "nobody")), None)


@contextmanager
def server() -> Iterator[str]:
    """The address of a server with an empty database, that lives as long as the block:
    root@127.0.0.1:port/shop."""
    folder = Path(tempfile.mkdtemp(prefix="eckart-my-"))
    user = _user()
    as_user = [] if user is None else [f"--user={user}"]
    if user is not None:
        shutil.chown(folder, user)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    made = [
        str(program("mariadb-install-db")),
        "--no-defaults",
        f"--datadir={folder}/data",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
    ]
    subprocess.run([*made, *as_user], check=True, capture_output=True, cwd=folder)
    words = [
        f"--datadir={folder}/data",
        f"--socket={folder}/s",
        f"--port={port}",
        "--bind-address=127.0.0.1",
        "--innodb-flush-log-at-trx-commit=0",
        f"--pid-file={folder}/pid",
        "--innodb-buffer-pool-size=64M",
    ]
    running = subprocess.Popen(
        [str(program("mariadbd")), "--no-defaults", *words, *as_user],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
    )
    try:
        for _ in range(400):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        client = [
            str(program("mariadb")),
            "--no-defaults",
            "-h127.0.0.1",
            f"-P{port}",
            "-uroot",
            "-e",
            "create database shop character set utf8mb4",
        ]
        subprocess.run(client, check=True, capture_output=True)
        yield f"root@127.0.0.1:{port}/shop"
    finally:
        running.terminate()
        running.wait(30)
        shutil.rmtree(folder, ignore_errors=True)
