"""The report: one file, nothing from outside, with certificate, pictures and names."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from eckart import PCA, FileError, plots
from eckart.certify.certificate import Certificate, Check
from eckart.report.html import Report
from eckart.report.reduce import reduce_report
from pages import Page


@pytest.fixture
def frame(rng):
    return pd.DataFrame(
        rng.standard_normal((60, 6)) @ rng.standard_normal((6, 6)),
        columns=["height", "width", "<b>", "a&b", "x", "y"],
    )


def test_report_is_self_contained_and_complete(frame, tmp_path):
    model = PCA(2).fit(frame)
    path = reduce_report(model, frame, name="my <data>", labels=["u", "v"] * 30).write(
        tmp_path / "r.html"
    )
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert page.tags.count("img") >= 4
    assert not re.search(r"https?://", re.sub(r"base64,[^\"]*", "", text))
    assert "The certificate holds." in page.text
    for check in model.certificate_.checks:
        assert check.name in page.text
    for fact in model.certificate_.facts:
        assert fact in page.text
    assert "height" in page.text
    assert "<b>" in page.text, "a column name was taken for HTML"
    assert "<data>" in page.text
    assert "60 rows and 6 columns in 2 components" in page.text
    assert model.fit_.plan["reason"] in page.text


@pytest.mark.parametrize("k", [0, 1, 2, 6])
@pytest.mark.parametrize("image", [None, (2, 3)])
@pytest.mark.parametrize("sample", [None, "rows", "gaps"])
def test_report_of_any_k(rng, k, image, sample):
    x = rng.standard_normal((40, 6))
    x[3, 2] = np.nan if sample == "gaps" else 0.0
    page = Page(reduce_report(PCA(k).fit(x), None if sample is None else x, image=image).render())
    assert "certificate holds" in page.text


def test_a_certificate_that_fails_is_shown_in_red():
    failed = Certificate(
        "p", "global", (Check("gap", 1.0, 0.1, "far & wide"),), {"captured": 2.0}, ("a <note>",)
    )
    text = Report("t").certificate(failed).render()
    page = Page(text)
    assert "does not hold" in page.text
    assert failed.reason in page.text
    assert 'class="bad"' in text
    assert "a <note>" in page.text


def test_everything_written_into_a_page_is_escaped():
    evil = "<script>alert(1)</script>"
    page = Page(
        Report(evil, evil).section(evil).text(evil).table([evil], [[evil, 1.5, "ok"]]).render()
    )
    assert page.text.count("alert(1)") == 7


def test_points_can_be_pointed_at_and_pictures_are_drawn(frame):
    page = Page(reduce_report(PCA(2).fit(frame), frame, labels=["u", "v"] * 30).render())
    assert page.svg >= 3
    (told,) = [marks for marks in page.marks if any("u, row 0" in mark[2] for mark in marks)]
    assert len(told) == 60
    assert all(0 <= across <= 1 and 0 <= down <= 1 for across, down, _ in told)


def test_very_many_points_become_an_image():
    ax = plots.code_map(np.random.default_rng(0).standard_normal((5000, 2)))
    page = Page(Report("t").pictures((ax, "many")).render())
    assert (page.svg, page.png) == (0, 1)


def test_the_same_report_has_the_same_bytes(frame):
    model = PCA(2).fit(frame)
    assert reduce_report(model, frame).render() == reduce_report(model, frame).render()


def test_the_answer_comes_before_the_evidence(frame):
    text = reduce_report(PCA(2).fit(frame), frame).render()
    places = [
        text.index(f'<h2 id="{name}"')
        for name in ("how-much", "where-the-rows-are", "evidence", "how-it-was-computed")
    ]
    assert places == sorted(places)
    assert text.index("See the evidence") < places[0]


def test_report_is_written_whole_or_not_at_all(tmp_path):
    with pytest.raises(FileError):
        Report("t").write(tmp_path / "no" / "r.html")
    (tmp_path / "r.html").write_text("old")
    Report("t").write(tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
