"""The report: one file, nothing from outside, with certificate, pictures and names."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from eckart import PCA, FileError
from eckart.certify.certificate import Certificate, Check
from eckart.report.html import Report
from eckart.report.reduce import reduce_report
from pages import Page


@pytest.fixture
def frame(rng):
    return pd.DataFrame(
        rng.standard_normal((60, 6)) @ rng.standard_normal((6, 6)), columns=["height", "width", "<b>", "a&b", "x", "y"]
    )


def test_report_is_self_contained_and_complete(frame, tmp_path):
    model = PCA(2).fit(frame)
    path = reduce_report(model, frame, name="my <data>", labels=["u", "v"] * 30).write(tmp_path / "r.html")
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
    failed = Certificate("p", "global", (Check("gap", 1.0, 0.1, "far & wide"),), {"captured": 2.0}, ("a <note>",))
    text = Report("t").certificate(failed).render()
    page = Page(text)
    assert "does not hold" in page.text
    assert failed.reason in page.text
    assert 'class="bad"' in text
    assert "a <note>" in page.text


def test_everything_written_into_a_page_is_escaped():
    evil = "<script>alert(1)</script>"
    page = Page(Report(evil, evil).section(evil).text(evil).table([evil], [[evil, 1.5, "ok"]]).render())
    assert "script" not in page.tags
    assert page.text.count("alert(1)") == 7


def test_report_is_written_whole_or_not_at_all(tmp_path):
    with pytest.raises(FileError):
        Report("t").write(tmp_path / "no" / "r.html")
    (tmp_path / "r.html").write_text("old")
    Report("t").write(tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
