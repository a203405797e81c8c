"""What this installation runs on: versions, threads, BLAS, free memory, the folder of compiled
kernels, and extras that are missing."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from importlib.util import find_spec
from typing import Any

NAME = re.compile(r"([\w.-]+).*?(?:extra == ['\"](\w+)['\"])?$")
FOR_DEVELOPERS = ("dev", "docs")
"""Extras that no user of eckart needs."""


def installation() -> dict[str, Any]:
    """Facts about this installation, as data: what ``show_versions`` and ``eckart doctor`` print.

    Returns
    -------
    dict
        ``versions`` of eckart, Python and its packages (None where one is not installed),
        ``missing`` (the line that installs each extra that is not there or
        not complete), ``blas``, ``processors``, ``free_memory`` in bytes, and ``kernels``: how many
        are compiled, and where they are kept.

    Examples
    --------
    >>> sorted(installation())
    ['blas', 'free_memory', 'kernels', 'missing', 'platform', 'processors', 'threads', 'versions']
    """
    import numba
    import numpy  # noqa: F401  # brings its BLAS
    from threadpoolctl import threadpool_info

    import eckart
    from eckart.engines import available_memory

    config: Any = numba.config
    versions: dict[str, str | None] = {
        "eckart": eckart.__version__,
        "Python": platform.python_version(),
    }
    missing: dict[str, str] = {}
    for line in metadata.requires("eckart") or ():
        package, extra = NAME.match(line).groups()  # type: ignore[union-attr]
        if extra not in FOR_DEVELOPERS:
            versions[package] = _version(package)
            if extra is not None and versions[package] is None:
                missing[extra] = f"pip install 'eckart[{extra}]'"
    folder = config.CACHE_DIR or os.path.dirname(eckart.__file__)
    kept = sum(name.endswith(".nbc") for _, _, names in os.walk(folder) for name in names)
    return {
        "platform": platform.platform(),
        "versions": versions,
        "missing": missing,
        "processors": os.cpu_count(),
        "threads": config.NUMBA_NUM_THREADS,
        "free_memory": available_memory(),
        "kernels": {"compiled": kept, "folder": folder},
        "blas": [
            f"{b['internal_api']} {b['version']}, {b['num_threads']} threads"
            for b in threadpool_info()
            if b["user_api"] == "blas"
        ],
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "?" if find_spec(package.replace("-", "_")) else None  # a copy without metadata


def lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The facts of ``installation`` as names and words."""
    kernels, gib = facts["kernels"], facts["free_memory"] / 2**30
    return [
        *((name, version or "not installed") for name, version in facts["versions"].items()),
        ("platform", facts["platform"]),
        ("processors", f"{facts['processors']}, threads of a fit: {facts['threads']}"),
        ("BLAS", "; ".join(facts["blas"])),
        ("memory", f"{gib:,.1f} GiB are free"),
        (
            "kernels",
            f"{kernels['compiled']} compiled in {kernels['folder']}",
        ),
        *(("missing", f"extra {extra}: {line}") for extra, line in facts["missing"].items()),
    ]


def show_versions() -> None:
    """Print what a report of a problem needs: versions, threads, BLAS, free memory, compiled
    kernels, and extras that are missing.

    Examples
    --------
    >>> import eckart
    >>> eckart.show_versions()  # doctest: +ELLIPSIS
    eckart                   ...
    """
    for name, words in lines(installation()):
        print(f"{name:<24} {words}")
