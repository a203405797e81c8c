"""Tutorials read files by plain names. For a test these names are made to exist in a folder of its
own; a page whose data are absent is skipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(
    os.environ.get("ECKART_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")
)
NEEDED = {
    "tutorial_ratings.rst": {"ml-100k": "movielens-100k"},
    "tutorial_survey.rst": {"bfi.csv": "bfi/bfi.csv"},
}


@pytest.fixture(autouse=True)
def files(request, tmp_path, monkeypatch):
    """The working folder of a page, with the files that it reads."""
    if request.path.name in ("clusters.rst", "migrate.rst"):
        pytest.importorskip(
            "distributed", reason="Dask is not installed: pip install 'eckart[dask]'"
        )
    for name, source in NEEDED.get(request.path.name, {}).items():
        if not (SHARED / source).exists():
            pytest.skip(f"real data set {source!r} is not on this machine")
        (tmp_path / name).symlink_to(SHARED / source)
    monkeypatch.chdir(tmp_path)
