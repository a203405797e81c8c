"""--workers and --cluster, which every command with --engine takes: a Dask cluster around the
command, and --engine dask in it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from eckart.errors import InputError, invalid

OPTIONS = ("--workers", "--cluster")
OWN = ("serve",)
"""Commands whose --workers are their own."""


def around(words: list[str]) -> tuple[list[str], Any]:
    """The words of a command without the two options, and what is to be entered while it runs.

    >>> around(["reduce", "x.npy", "-k", "3"])[0]
    ['reduce', 'x.npy', '-k', '3']
    >>> around(["reduce", "x.npy", "--workers", "2"])[0]
    ['reduce', 'x.npy', '--engine', 'dask']
    >>> around(["serve", "m.safetensors", "--workers", "2"])[0]
    ['serve', 'm.safetensors', '--workers', '2']
    """
    if words[:1] and words[0] in OWN:
        return words, nullcontext()
    rest, cluster_options = _parted(words)
    if not cluster_options:
        return words, nullcontext()
    if len(cluster_options) == 2:
        raise InputError(
            "give --workers or --cluster, not both: a cluster of this machine, or a running one"
        )
    engine = next((rest[i + 1] for i, word in enumerate(rest[:-1]) if word == "--engine"), None)
    if engine not in (None, "dask"):
        raise invalid("--engine", engine, f"dask, or none, beside {next(iter(cluster_options))}")
    rest = rest if engine else [*rest, "--engine", "dask"]
    if "--cluster" in cluster_options:
        return rest, _running(cluster_options["--cluster"])
    count = cluster_options["--workers"]
    if not count.isdigit() or int(count) < 1:
        raise invalid("--workers", count, "a number of processes, 1 or more")
    return rest, _local(int(count))


def _parted(words: list[str]) -> tuple[list[str], dict[str, str]]:
    rest: list[str] = []
    cluster_options: dict[str, str] = {}
    given = iter(words)
    for word in given:
        name, equals, value = word.partition("=")
        if name not in OPTIONS:
            rest.append(word)
            continue
        found = value if equals else next(given, None)
        if found is None:
            raise InputError(
                f"{name} must be {'a number of processes' if name == OPTIONS[0] else 'an address'}, "
                "got no value"
            )
        cluster_options[name] = found
    return rest, cluster_options


@contextmanager
def _local(count: int) -> Iterator[None]:
    """So many processes of this machine, one thread each."""
    from eckart.clusters.client import load_dask

    distributed = load_dask()
    import dask

    # a worker that is started again is no news to a user
    logging.getLogger("distributed").setLevel(logging.ERROR)
    # Dask would give a worker up for good that is being started again for the second time when this
    # is over
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
        distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster),
    ):
        yield


@contextmanager
def _running(address: str) -> Iterator[None]:
    from eckart.clusters.client import client_of, load_dask

    load_dask()
    with client_of(address):
        yield
