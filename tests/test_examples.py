"""Every script in examples/ runs, and what it prints is true."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest

FOLDER = Path(__file__).resolve().parents[1] / "examples"
NUMBER = r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """A function from the name of an example to (what it printed, how many figures it drew)."""

    def go(name: str) -> tuple[str, int]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name])
        with matplotlib.rc_context():
            plt.switch_backend("Agg")
            plt.close("all")
            runpy.run_path(str(FOLDER / name), run_name="__main__")
            figures = len(plt.get_fignums())
            plt.close("all")
        return capsys.readouterr().out, figures

    return go


def numbers(pattern: str, text: str) -> list[float]:
    found = re.search(pattern.replace("#", NUMBER), text)
    assert found, f"{pattern!r} is not in:\n{text}"
    return [float(v) for v in found.groups()]


def test_every_example_is_tested():
    names = {path.name for path in FOLDER.glob("*.py")}
    assert names == {"demo.py", "plot_autoencoder.py", "plot_choose_k.py", "plot_digits.py", "plot_missing.py"}


def test_demo_finds_what_it_says_and_writes_a_self_contained_report(run, tmp_path):
    out, _ = run("demo.py")
    assert len(out.strip().splitlines()) == 4
    (kept,) = numbers(r"keep #% of the variance", out)
    assert 95 < kept < 97
    (captured,) = numbers(r"certificate holds: # of what", out)
    assert captured > 0.999999
    complete, gappy = numbers(r"error # per pixel from all pixels, # from 70 %", out)
    assert complete < gappy < 2 * complete
    page = (tmp_path / "out" / "report.html").read_text()
    assert "data:image/png;base64," in page
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)


def test_digits_risk_falls_with_k_and_codes_nearly_match_pixels(run):
    out, figures = run("plot_digits.py")
    assert figures == 4
    assert "Certificate: HOLDS (global)" in out
    risks = [numbers(rf"risk at k = {k} +#", out)[0] for k in (2, 10, 30)]
    assert risks[0] > 2 * risks[1] > 8 * risks[2]
    codes, pixels = numbers(r"accuracy +# from 30 codes, # from 64 pixels", out)
    assert codes > 0.93
    assert codes > pixels - 0.04


def test_missing_entries_are_filled_better_than_by_means(run):
    out, figures = run("plot_missing.py")
    assert figures == 2
    assert "Certificate: HOLDS (stationary)" in out
    means, filled, observed = (
        numbers(rf"{name} +error of the hidden entries #", out)[0]
        for name in ("column means", "PCA of the filled table", "PCA on observed entries")
    )
    assert observed < 0.9 * filled < 0.9 * means
    (ratio,) = numbers(r"PCA leaves # of the error of column means", out)
    assert ratio < 0.6


def test_planted_rank_is_found(run):
    out, figures = run("plot_choose_k.py")
    assert figures == 3
    planted, held_out, threshold, parallel, share = numbers(
        r"planted #, chosen held_out #, gavish_donoho #, parallel #, share #", out
    )
    assert planted == held_out == threshold == parallel == 5
    assert share > planted


def test_autoencoders_reach_the_pca_subspace_and_early_ones_are_told(run):
    out, figures = run("plot_autoencoder.py")
    assert figures == 1
    (least,) = numbers(r"PCA risk at k = 8: #", out)
    for name in ("gd", "heavy_ball", "nesterov", "adagrad", "adam"):
        _, risk, angle = numbers(rf"\n{name} +# steps +risk # +angle # +certificate holds", out)
        assert risk == pytest.approx(least, rel=1e-6)
        assert angle < 1e-3
    assert "Ritz residual" in out.split("after 30 steps of gd:")[1].splitlines()[0]
    (worst,) = numbers(r"largest angle to the PCA subspace: # radians", out)
    assert worst < 1e-3
