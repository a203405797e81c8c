"""What a notebook shows of results: tables with the numbers in them, text escaped, the certificate
under scikit-learn's diagram."""

from __future__ import annotations

import json
import subprocess
import sys
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
            "min <x>",
            "global",
            (Check("gap & more", value, 1e-6, "distance"),),
            {"rows": 1234},
            ("a <note>",),
        )
        cells = Cells(c._repr_html_()).text
        assert f"The certificate {words} (global)." in cells
        for text in (
            " min <x>",
            "gap & more",
            "1e-06",
            "1,234",
            "a <note>",
            "ok" if value < 1 else "fails",
        ):
            assert text in cells


def test_a_trace_is_a_line_from_first_to_last():
    trace = Trace("objective")
    assert "svg" not in trace._repr_html_()
    for value in (4.0, 2.0, float("nan"), 1.0):
        trace.add(value)
    page = trace._repr_html_()
    assert {"objective", "4"} <= set(Cells(page).text)
    heights = [
        float(point.split(",")[1]) for point in page.split('points="')[1].split('"')[0].split()
    ]
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


def test_a_model_leads_with_its_answer_and_folds_the_certificate(rng):
    x = rng.random((60, 5))
    gaps = np.where(rng.random(x.shape) < 0.2, np.nan, x)
    counts = eckart.corpus(["tea rye tea", "rye oat oat", "tea oat rye"] * 4)
    found = {
        "keep": PCA(3).fit(x / [1, 1, 4, 4, 4]),
        "words": PLSA(2, random_state=0).fit(counts),
        "entries seen": ALS(1, random_state=0).fit(gaps),
        "parts": eckart.NMF(2, random_state=0).fit(x),
        "share": eckart.GaussianMixture(2, random_state=0).fit(x),
        "error at cells held out": eckart.MixedTable(1, random_state=0).fit(gaps),
        "nearest": eckart.PMI(2, min_count=1, random_state=0).fit(
            [["tea", "rye", "oat"], ["rye", "oat", "tea"]] * 5
        ),
        "component": eckart.TruncatedSVD(2, random_state=0).fit(x),
    }
    for words, model in found.items():
        answer, _, rest = model._repr_html_().partition("<details")
        assert words in answer
        assert "certificate" not in answer
        assert "The certificate" in rest.split("</details>")[0]


IN_A_NOTEBOOK = """
import json, sys
import numpy as np
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.kernel = object()  # what the shell of a notebook has
shell.display_pub = CapturingDisplayPublisher(parent=shell)
import eckart
x = np.random.default_rng(0).random((200, 12))
model = eckart.GaussianMixture(4, tol=0.0, max_iter=150, random_state=0, verbose=1).fit(x)
told = shell.display_pub.outputs
kinds, _ = shell.display_formatter.format(eckart.plots.scree(eckart.PCA(3).fit(x)))
print(json.dumps({"new": sum(not o.get("update") for o in told), "all": len(told), "last": told[-1]["data"]["text/plain"], "shown": sorted(kinds)}))
"""


def test_a_notebook_shows_plots_and_one_line_of_progress():
    pytest.importorskip("IPython", reason="IPython is not installed")
    out = subprocess.run(
        [sys.executable, "-c", IN_A_NOTEBOOK], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(out) == 1, "nothing is printed beside it"
    told = json.loads(out[0])
    assert told["new"] == 1
    assert "EM: 150 of 150" in told["last"]
    assert "image/png" in told["shown"]


@pytest.mark.parametrize("draw", ["scree", "code_maps"])
def test_pictures_show_themselves(draw, rng):
    model = PCA(2).fit(rng.random((9, 3)))
    made = (
        eckart.plots.scree(model)
        if draw == "scree"
        else eckart.plots.code_maps(
            {"a": rng.random((4, 2)), "b": rng.random((4, 2))}, list("xyxy")
        )
    )
    assert made._repr_png_().startswith(b"\x89PNG")


def test_plots_are_there_after_import():
    assert eckart.plots.scree.__module__ == "eckart.plots.reduce"
    with pytest.raises(AttributeError):
        eckart.nothing  # noqa: B018
