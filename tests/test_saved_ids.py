"""Ids of every kind come back from a model file as they were; others are refused when a model is
fitted."""

from __future__ import annotations

import datetime as dt
import json
import os
import uuid
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import eckart
from eckart import ALS, InputError
from eckart.cli.main import app

BERLIN = ZoneInfo("Europe/Berlin")
KINDS = {
    "bytes": [b"a\xff", b"b", b""],
    "tuples": [("a", 1), ("a", 2), ("b", (3.5, None))],
    "durations": [dt.timedelta(days=1, microseconds=1), dt.timedelta(0), dt.timedelta(days=-2)],
    "durations of NumPy": np.array([1, 5, -3], "m8[s]"),
    "times of a zone": [
        dt.datetime(2024, 5, 1, 1, tzinfo=BERLIN),
        dt.datetime(2024, 5, 1, tzinfo=dt.UTC),
        dt.datetime(2024, 12, 1, tzinfo=BERLIN),
    ],
    "decimals": [Decimal("1.10"), Decimal("1.2"), Decimal(3)],
    "uuids": [uuid.UUID(int=i) for i in range(3)],
    "infinite": [float("inf"), 0.5, float("-inf")],
    "periods": list(pd.period_range("2024-01", periods=3, freq="M")),
    "durations of pandas": [pd.Timedelta(k, unit="ns") for k in (1, -5, 86_400_000_000_001)],
    "fine times of a zone": list(pd.to_datetime([1, 2, 999]).tz_localize("Europe/Berlin")),
    "mixed": [1, "1", b"1"],
    "dates": [dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31)],
}


def _fitted(ids):
    cells = [(i, c, float(k)) for k, i in enumerate(ids) for c in "xyz"]
    return ALS(1, max_iter=2, random_state=0).fit(cells, rows=0, columns=1, values=2)


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_saved_as_they_are(tmp_path, kind):
    ids = list(KINDS[kind])
    model = _fitted(ids)
    model.save(tmp_path / "m.safetensors")
    again = eckart.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict(ids, ["x"] * 3), model.predict(ids, ["x"] * 3))
    before, after = (m.row_ids.names(np.arange(3)) for m in (model, again))
    assert [type(a) for a in after] == [type(b) for b in before]
    assert after.tolist() == before.tolist()


@pytest.mark.parametrize("strange", [1j, frozenset([1]), object()])
def test_ids_that_no_file_can_hold_are_refused_at_fit(strange):
    with pytest.raises(
        InputError, match="ids must be texts, numbers, dates, bytes or tuples of them, got type"
    ):
        _fitted([strange, "b"])


@pytest.mark.parametrize(
    "saved",
    [
        {"bytes": "!"},
        {"tuple": 3},
        {"datetime": "soon"},
        {"evil": 1},
        {},
        {"time64": ["<M8[s]", "x"]},
        {"time64": ["O", 1]},
    ],
)
def test_ids_of_a_damaged_file_are_refused(saved):
    from eckart.io.models.save import unpack_ids

    with pytest.raises(eckart.FileError, match="an id"):
        unpack_ids([saved], "rows", {})


def _run(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def test_a_terminal_shows_what_ids_hold_and_does_not_carry_it_out(tmp_path):
    cells = [
        (f"u{i}", f"\x1b[2J\x1b[8m\x9b\x07item{j}\u202e", float(i % 3 + j % 2))
        for i in range(6)
        for j in range(5)
        if (i + j) % 4
    ]
    ALS(1, random_state=0).fit(cells, rows=0, columns=1, values=2).save(tmp_path / "m.safetensors")
    log = tmp_path / "log"
    for more in (
        [],
        ["--explain", "\x1b[2J\x1b[8m\x9b\x07item2\u202e"],
        ["--similar"],
        ["--json", "--log", log],
    ):
        found = _run("recommend", tmp_path / "m.safetensors", "--row", "u1", *more)
        assert found.exit_code == 0
        assert not set(found.output) & {"\x1b", "\x9b", "\x07", "\u202e"}, more
        assert more == ["--similar"] or "item" in found.output
    assert json.loads(found.output)["list"][0]["column"].startswith("\x1b[2J\x1b[8m\x9b\x07item")
    assert "\x1b" not in log.read_text()


@pytest.mark.parametrize(
    "where",
    [
        "{outside}/titles.csv",
        "../outside/titles.csv",
        "sub/titles.csv",
        "..\\titles.csv",
        "link.csv",
        "x" * 5000,
    ],
)
def test_a_model_opens_no_file_but_the_titles_beside_it(tmp_path, monkeypatch, where):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (inside / "sub").mkdir(parents=True)
    outside.mkdir()
    (inside / "link.csv").symlink_to(outside / "titles.csv")
    for folder in (outside, inside / "sub", inside):
        (folder / "titles.csv").write_text(
            "id,title\n" + "".join(f"c{j},Title {j}\n" for j in range(5))
        )
    cells = [
        (f"u{i}", f"c{j}", float(i % 3 + j % 2)) for i in range(6) for j in range(5) if (i + j) % 4
    ]
    model = ALS(1, random_state=0).fit(cells, rows=0, columns=1, values=2)
    monkeypatch.chdir(inside)
    for spec, shown in ((where.format(outside=outside), False), ("titles.csv", True)):
        model.fit_.plan["titles"] = f"{spec}:id:title"
        model.save("m.safetensors")
        monkeypatch.chdir(os.sep)  # beside the model, not beside the person
        found = _run("recommend", inside / "m.safetensors", "--row", "u1")
        assert ("Title" in found.output) is shown
        assert shown or "not beside the model" in found.output
        monkeypatch.chdir(inside)
