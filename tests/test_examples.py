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
            (script,) = FOLDER.rglob(name)
            runpy.run_path(str(script), run_name="__main__")
            figures = len(plt.get_fignums())
            plt.close("all")
        return capsys.readouterr().out, figures

    return go


def numbers(pattern: str, text: str) -> list[float]:
    found = re.search(pattern.replace("#", NUMBER), text)
    assert found, f"{pattern!r} is not in:\n{text}"
    return [float(v) for v in found.groups()]


def test_every_example_is_tested():
    names = {path.name for path in FOLDER.rglob("*.py")}
    reduce = {"plot_autoencoder.py", "plot_choose_k.py", "plot_digits.py", "plot_missing.py"}
    completions = (
        "cold_start compare item_response mixed_table path phase photograph rank recommend "
        "saddle series"
    )
    complete = {f"plot_{name}.py" for name in completions.split()}
    explain = {f"plot_{name}.py" for name in ("mixture", "parts", "topics")}
    embed = {f"plot_{name}.py" for name in ("baskets", "pmi_optimum", "words")}
    networks = {"plot_deep.py", "plot_convolution.py"}
    clusters = {"plot_cluster.py"}
    assert names == {"demo.py"} | reduce | complete | explain | embed | networks | clusters


def test_series_are_filled_and_continued(run):
    out, figures = run("plot_series.py")
    assert "a period of 24 columns" in out
    error, plain = numbers("error of hidden cells: #, of the stations' means: #", out)
    assert error < 0.5 * plain
    assert 0.85 < numbers("hidden cells in their 90 % intervals: #", out)[0] < 0.95
    assert 0.75 < numbers("next day in their 90 % intervals: #", out)[0] <= 1
    assert figures == 1


@pytest.mark.slow
def test_cluster_keeps_its_answer_when_a_worker_is_lost(run):
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'eckart[dask]'")
    out, figures = run("plot_cluster.py")
    assert "the same bits: True" in out
    assert "certificate holds: True" in out
    assert figures == 1


@pytest.mark.slow
def test_demo_finds_what_it_says_and_writes_a_self_contained_report(run, tmp_path):
    out, _ = run("demo.py")
    assert len(out.strip().splitlines()) == 38
    (kept,) = numbers(r"keep #% of the variance", out)
    assert 95 < kept < 97
    (captured,) = numbers(r"certificate holds: # of what", out)
    assert captured > 0.999999
    complete, gappy = numbers(r"error # per pixel from all pixels, # from 70 %", out)
    assert complete < gappy < 2 * complete
    estimate, true, biases = numbers(r"error # on held-out ones, # in truth, # by biases only", out)
    assert estimate == pytest.approx(true, rel=0.05)
    assert true < 0.7 * biases
    assert re.search(r"recovery +A matrix of rank 5 can be recovered, comfortably", out)
    assert len(re.findall(r"film \d{3}", out.split("may like")[1].splitlines()[0])) == 4
    (psnr,) = numbers(r"restored with PSNR # dB", out)
    assert psnr > 26
    assert (tmp_path / "out" / "photograph.png").stat().st_size > 10_000
    topics = [
        set(line.split("%")[1].split()) for line in out.splitlines() if line.startswith("topic ")
    ]
    assert len(topics) == 15
    for words in (
        {"distribution", "test"},
        {"estimator", "fit"},
        {"polynomial", "coefficients"},
        {"random", "generator"},
    ):
        assert any(words <= topic for topic in topics), f"no topic holds {words}"
    ours, plain = numbers(
        r"perplexity # on \d+ words of documents that a fit has not seen, # by word "
        r"frequencies",
        out,
    )
    assert ours < 0.6 * plain
    assert "column is to columns" in out
    assert "sinh is to cosh" in out
    assert "eigenvectors" in out.split("near      eigenvalues: ")[1].split()[:2]
    loss, start, bound = numbers(r"loss #, # without vectors, # at the unfactored optimum", out)
    assert bound < loss < start
    for name in ("report.html", "complete.html", "explain.html", "embed.html"):
        page = (tmp_path / "out" / name).read_text()
        assert "data:image/" in page
        assert not re.search(r"(?:src|href)=\"(?!data:|#)", page)


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


@pytest.mark.slow
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


def test_small_steps_follow_the_flow_away_from_the_saddle(run):
    out, figures = run("plot_saddle.py")
    assert figures == 2
    low, high = numbers(r"eigenvalues of the Hessian at 0: \[#, #\]", out)
    assert (low, high) == (-1, 1)
    (waits,) = numbers(r"from x\(0\) = 0.01 half the height is reached at t = #", out)
    assert waits == pytest.approx(2.30, abs=0.01)
    coarse, fine = (numbers(rf"exact flow at step {h}: #", out)[0] for h in ("0.05", "0.005"))
    assert coarse < 0.02
    assert fine < 0.12 * coarse


@pytest.mark.slow
def test_exact_recovery_reaches_further_than_projection(run):
    out, figures = run("plot_phase.py")
    assert figures == 1
    (first, cells) = numbers(r"\nSVP +recovered # of # matrices", "\n" + out)
    (both,) = numbers(r"SVP, then ExactRecovery +recovered # of", out)
    assert 0.4 * cells < first < both < cells
    assert "1 row with fewer than 3 entries cannot be determined: 5" in out
    assert "verdict: proven" in out


@pytest.mark.slow
def test_a_photograph_is_restored_better_from_patches(run):
    out, figures = run("plot_photograph.py")
    assert figures == 3
    blank, rows, patches = (
        numbers(rf"{name} +PSNR # dB", out)[0]
        for name in ("mean colour", "rows of pixels", "patches")
    )
    assert blank + 8 < rows
    assert rows + 2 < patches
    assert "Certificate: HOLDS" in out


@pytest.mark.slow
def test_the_rank_rises_along_the_path_and_debiasing_helps_at_the_true_one(run):
    out, figures = run("plot_path.py")
    assert figures == 2
    assert "Certificate: HOLDS (global)" in out
    lines = [
        tuple(map(float, line))
        for line in re.findall(
            r"tau +([\d.]+) +rank +(\d+) +error ([\d.]+) +debiased ([\d.]+)", out
        )
    ]
    taus, ranks, shrunk, debiased = zip(*lines)
    assert list(taus) == sorted(taus, reverse=True)
    assert list(ranks) == sorted(ranks)
    at = ranks.index(5)
    assert debiased[at] < 0.7 * min(shrunk)


@pytest.mark.slow
def test_too_many_factors_harm_als_and_not_the_bayesian_model(run):
    out, figures = run("plot_rank.py")
    assert figures == 2
    assert "chosen: {'n_components': 4" in out
    small, tuned, bayes = (
        numbers(rf"{name} +# +# +# +# +#", out)
        for name in ("ALS, ridge 0.005", "ALS, ridge tuned", "Bayesian")
    )
    assert small[4] > 1.3 * small[2]
    assert tuned[4] < small[4]
    assert bayes[4] < 1.05 * bayes[2] < 1.05 * tuned[4]
    (covered,) = numbers(r"90 % intervals hold #% of", out)
    assert 85 < covered < 95


def test_item_response_covers_abilities_and_difficulties(run):
    out, figures = run("plot_item_response.py")
    assert figures == 1
    found, plain = numbers(r"ALS: #", out)[0], numbers(r"question means: #", out)[0]
    assert found < 0.7 * plain
    assert "certificate holds: True" in out
    for name in ("ability", "difficulty"):
        assert (
            62 <= numbers(rf"{name}: #% of the true values", out)[0] <= 100
        )  # 20 questions: a deviation of 7 %, four of them from 90 %
    assert out.count("discrimination") == 5


def test_cold_start_is_served_by_attributes(run):
    out, figures = run("plot_cold_start.py")
    attributes, biases = numbers("attributes # biases #", out)
    assert attributes < 0.9 * biases
    assert "nothing was seen" in out
    assert figures == 1


def test_recommendations_follow_planted_tastes_and_are_explained(run):
    out, figures = run("plot_recommend.py")
    assert figures == 2
    error, spread = numbers(r"error on held-out ones #, their standard deviation #", out)
    assert error < 0.75 * spread
    assert (
        numbers(r"# of 8 recommendations for nora are curries or noodles", out)[0] >= 6
    )  # half of them would be chance; other starts give seven
    assert out.split("pia: ")[1].splitlines()[0].count("taco") == 4
    assert re.search(r"row nora, column curry \d+: [\d.]+ = [\d.]+ from mean and biases", out)
    assert re.search(r"like pasta 1: (pasta \d+ \([\d.]+\)(, )?){4}", out)


def test_recommenders_are_compared_on_the_same_hidden_entries(run):
    out, figures = run("plot_compare.py")
    assert figures == 1
    lines = [
        line.split()
        for line in out.splitlines()
        if re.match(r"(slim|ease|gf-cf|als|blend|popularity) ", line)
    ]
    ndcg = {line[0]: float(line[1]) for line in lines}
    assert len(ndcg) == 6
    assert min(ndcg["slim"], ndcg["ease"], ndcg["gf-cf"], ndcg["blend"]) > 1.5 * ndcg["popularity"]
    assert ndcg["blend"] >= 0.9 * max(ndcg.values())
    assert "certificate holds: True" in out
    assert re.search(r"in parts: \w", out)


def test_a_mixed_table_is_filled_better_than_by_its_columns_alone(run):
    out, figures = run("plot_mixed_table.py")
    assert figures == 1
    assert "same types: True; gaps left: 0" in out
    assert "Certificate: HOLDS" in out
    assert max(map(float, re.findall(r"error ([\d.]+) of that", out))) < 0.75
    assert float(re.search(r"sports +([\d.]+)", out.split("log odds")[1])[1]) > 0.5


@pytest.mark.slow
def test_topics_of_documentation_follow_its_packages(run):
    out, figures = run("plot_topics.py")
    assert figures == 4
    assert re.search(r"1\d{3} documents, \d+ words", out)
    inside, chance = numbers(
        r"#% of the functions lie in the commonest subpackage of their topic, #% would", out
    )
    assert inside > 1.8 * chance
    assert re.search(r"a new text: \d+% topic \d+ \(.*\), 7 words dropped", out)
    found = [numbers(rf"{k} topics: perplexity #, coherence #", out) for k in (4, 8, 16, 32)]
    assert found[0][0] > found[1][0] > found[2][0]


def test_soft_clusters_agree_with_species_and_gaps_do_little_harm(run):
    out, figures = run("plot_mixture.py")
    assert figures == 3
    assert "Certificate: HOLDS (stationary)" in out
    (whole,) = numbers(r"#% of the flowers have the commonest species", out)
    assert whole > 95
    assert "least BIC: 2 components, full covariances" in out
    rows, gappy = numbers(r"\(# of 150 rows are whole\): #%", out)
    assert rows < 75
    assert gappy > 90  # 92.7 and more on 30 draws of the gaps


@pytest.mark.slow
def test_parts_are_local_and_hidden_pixels_are_filled(run):
    out, figures = run("plot_parts.py")
    assert figures == 3
    assert "Certificate: HOLDS (stationary)" in out
    parts, components = numbers(r"empty pixels +#% of a part, #% of a component", out)
    assert parts > 50
    # where the faces are not on this machine; most of their pixels are always empty
    swimmers = "256 images" in out
    assert swimmers or 1.5 * components < 50
    ours, best = numbers(r"error +# from parts, # from components", out)
    assert best < ours < 2 * best + (0.1 if swimmers else 0.05)
    error, plain = numbers(r"hidden pixels +error # by NMF, # by the mean image", out)
    assert error < 0.75 * plain
    assert "chosen: held_out" in out


@pytest.mark.slow
def test_words_of_documentation_have_neighbours_and_analogies(run):
    out, figures = run("plot_words.py")
    assert figures == 3
    assert "Certificate: HOLDS (stationary)" in out
    assert "4 of 4 as expected" in out
    inside, between = numbers(r"mean cosine inside a subject #, between subjects #", out)
    assert inside > 2 * between
    assert "eigenvectors" in out.split("eigenvalues  ")[1].split()[:2]
    assert "PMI: certificate holds (global)" in out
    assert "transform: (1, 50)" in out


def test_products_of_baskets_find_their_errand(run):
    out, figures = run("plot_baskets.py")
    assert figures == 2
    assert "Certificate: HOLDS (stationary)" in out
    assert numbers(r"nearest is the other brand: #%", out)[0] > 95
    inside, chance = numbers(r"the five nearest are of the same errand: #%, by chance #%", out)
    assert inside > 80 > 3 * chance
    proposed = out.split("with flour A, eggs B, milk: ")[1].splitlines()[0].split(", ")
    assert {product[:-2] for product in proposed} <= {
        "flour",
        "sugar",
        "yeast",
        "butter",
        "eggs",
        "vanilla",
    }
    assert "mop A: mop A" in out
    assert numbers(r"skip-gram #%, PMI #%", out)[1] > 90


def test_skip_gram_reaches_shifted_pmi(run):
    out, figures = run("plot_pmi_optimum.py")
    assert figures == 3
    for r in (1, 5):
        far, loss, bound = numbers(
            rf"exact, r = {r}: largest \|score - \(PMI - log {r}\)\| #, loss #, lower bound #", out
        )
        assert far < 0.01
        assert loss == pytest.approx(bound, abs=2e-6)
    assert numbers(r"stochastic, r = 1: largest \|score - PMI\| #", out)[0] < 0.2
    gaps = [
        float(g)
        for g in re.findall(r"\d+: ([\d.e+-]+)", out.split("gap by k: ")[1].splitlines()[0])
    ]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-6 < 1e-3 < gaps[0]
    assert numbers(r"PMI by SVD: largest \|score - PMI\| #", out)[0] < 0.01


@pytest.mark.slow  # the specification asks the same of the same model
def test_two_numbers_of_a_network_tell_more_than_two_components(run):
    pytest.importorskip("torch", reason="networks need PyTorch")
    out, figures = run("plot_deep.py")
    assert figures == 4
    assert "(stationary)" in out
    ours, linear = numbers(r"at k = 2: autoencoder #, PCA #", out)
    assert ours < 0.85 * linear
    net, pca = numbers(r"accuracy # from the network's map, # from PCA's", out)
    assert net > 1.15 * pca


@pytest.mark.slow
def test_convolutions_fill_holes_and_read_digits(run):
    pytest.importorskip("torch", reason="networks need PyTorch")
    out, figures = run("plot_convolution.py")
    assert figures == 2
    ours, mean = numbers(r"hidden pixels: # by the network, # by the mean image", out)
    assert ours < 0.65 * mean
    (hit,) = numbers(r"accuracy on unseen digits: #", out)
    assert hit > 0.9
