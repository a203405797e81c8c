"""What a notebook shows of results: tables with the numbers in them, text escaped, the certificate under scikit-learn's diagram."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

import eckart
from eckart import ALS, PCA, PLSA, Certificate, Vectors
from eckart.certify.certificate import Check
from eckart.notebook import curve
from eckart.trace import Trace


class Cells(HTMLParser):
    """The text of every cell; tags must close in order."""

    def __init__(self, page):
        super().__init__()
        self.open, self.text = [], []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        if tag not in ("polyline", "br", "meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("polyline", "br"):
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_a_certificate_shows_its_verdict_checks_facts_and_notes():
    for value, words in ((1e-9, "holds"), (1.0, "does not hold")):
        c = Certificate(
            "min <x>", "global", (Check("gap & more", value, 1e-6, "distance"),), {"rows": 1234}, ("a <note>",)
        )
        cells = Cells(c._repr_html_()).text
        assert f"The certificate {words} (global)." in cells
        for text in (" min <x>", "gap & more", "1e-06", "1,234", "a <note>", "ok" if value < 1 else "fails"):
            assert text in cells


def test_a_trace_is_a_line_from_first_to_last():
    trace = Trace("objective")
    assert "svg" not in trace._repr_html_()
    for value in (4.0, 2.0, float("nan"), 1.0):
        trace.add(value)
    page = trace._repr_html_()
    assert {"objective", "4"} <= set(Cells(page).text)
    heights = [float(point.split(",")[1]) for point in page.split('points="')[1].split('"')[0].split()]
    assert heights == sorted(heights), "values that fall go down the picture"
    assert len(heights) == 3
    assert curve([1.0]) == ""


def test_models_and_answers(rng):
    x = rng.random((30, 5))
    pca = PCA(2).fit(x)
    page = pca._repr_html_()
    assert "sk-container" in page
    assert "The certificate holds (global)." in page
    assert "certificate" not in PCA(2)._repr_html_()
    assert {"solver", "svd"} <= set(Cells(pca.fit_._repr_html_()).text)
    x[rng.random(x.shape) < 0.3] = np.nan
    lists = ALS(1, random_state=0).fit(x).recommend([0, 1], 2, exclude_seen=False)
    cells = Cells(lists._repr_html_()).text
    assert cells[:4] == ["row", "rank", "column", "score"]
    assert len(cells) == 4 + 4 * 4
    counts = eckart.corpus(["tea rye tea", "rye oat oat", "tea oat rye"] * 4)
    topics = PLSA(2, random_state=0).fit(counts).fit_.factors
    assert Cells(topics._repr_html_()).text[:3] == ["topic", "share", "words"]
    cells = Cells(Vectors(["<a>", "b", "c"], np.eye(3) + 0.1)._repr_html_()).text
    assert cells[0] == "3 words, vectors of 3 numbers"
    assert "<a>" in cells


def test_plots_are_there_after_import():
    assert eckart.plots.scree.__module__ == "eckart.plots.reduce"
    with pytest.raises(AttributeError):
        eckart.nothing  # noqa: B018
