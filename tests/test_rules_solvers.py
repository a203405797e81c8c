"""Rules by which solvers shorten, restart and end, one by one, on histories made for them: what a
whole run rarely meets."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import eckart
from eckart import (
    ALS,
    LDA,
    PCA,
    SVP,
    Autoencoder,
    BayesianMF,
    GaussianMixture,
    Observed,
    SoftImpute,
)
from eckart.complete.nuclear import svt
from eckart.complete.nuclear.operators import Triples
from eckart.engines import engine_named
from eckart.errors import InputError
from eckart.trace import Trace


def ascent(misfits, eta=8.0, accelerate=False, slopes=None):
    """The steps of an SVT whose residuals have these norms; what eta is after each, and the state
    at the end."""
    told = iter(misfits)
    rest = np.array([0.5, -0.5])

    def residual(b, left, right):
        return rest if slopes is None else rest * next(slopes), next(told) ** 2

    found = object.__new__(svt._Ascent)
    found.pattern, found.b, found.rank, found.eta, found.tau = (
        SimpleNamespace(residual=residual),
        np.ones(2),
        1,
        eta,
        1.0,
    )
    found.y = found.z = np.zeros(2)
    found.t, found.accuracy, found.strikes, found.stale, found.least, found.last = (
        1.0,
        1e-3,
        0,
        0,
        np.inf,
        np.inf,
    )
    found.shrunk = lambda y, tol: Triples(np.ones((2, 1)), np.ones(1), np.ones((2, 1)), np.zeros(1))
    trace, steps = Trace("r"), []
    for _ in misfits:
        found._step(accelerate, 1e-9, trace)
        steps.append(found.eta)
    return steps, found


def test_svt_halves_its_step_after_three_residuals_in_a_row_above_twice_the_best():
    assert (svt.STRIKES, svt.BURST, svt.STALE) == (3, 20, 25)
    assert ascent([1.0, 2.1, 2.1, 2.1])[0] == [8.0, 8.0, 8.0, 4.0]
    assert ascent([1.0, 2.1, 2.1, 1.9, 2.1, 2.1])[0] == [8.0] * 6
    assert ascent([1.0, 1.9, 1.9, 1.9, 1.9])[0] == [8.0] * 5


def test_svt_halves_its_step_at_a_burst_and_where_no_best_is_found():
    assert ascent([1.0, 19.9])[0] == [8.0, 8.0]
    assert ascent([1.0, 20.1])[0] == [8.0, 4.0]
    steps, _ = ascent([1.0] + [1.5] * 25)
    assert steps == [8.0] * 25 + [4.0]


def test_svt_goes_back_to_the_best_point_and_never_below_a_step_of_one():
    steps, found = ascent([1.0, 30.0])
    assert steps[-1] == 4.0
    np.testing.assert_array_equal(found.z, found.best_y)
    assert (found.t, found.strikes, found.stale, found.last) == (1.0, 0, 0, np.inf)
    assert ascent([1.0, 30.0], eta=1.5)[0] == [1.5, 1.0]
    steps, found = ascent([1.0, 30.0], eta=1.0)  # a step of one always falls in the end
    assert steps == [1.0, 1.0]
    np.testing.assert_allclose(found.z, 2 * np.array([0.5, -0.5]))


def test_svt_takes_momentum_while_the_residual_falls():
    """t' = (1 + sqrt(1 + 4 t^2)) / 2, z = y' + (t - 1) / t' (y' - y); a rise, or a step against the
    last move, begins anew."""
    rest = np.array([0.5, -0.5])
    golden = (1 + np.sqrt(5)) / 2
    _, found = ascent([1.0], eta=2.0, accelerate=True)
    assert found.t == pytest.approx(golden)
    np.testing.assert_allclose(found.z, 2 * rest)
    _, found = ascent([1.0, 0.9], eta=2.0, accelerate=True)
    after = (1 + np.sqrt(1 + 4 * golden**2)) / 2
    assert found.t == pytest.approx(after)
    np.testing.assert_allclose(found.y, 4 * rest)
    np.testing.assert_allclose(found.z, 4 * rest + (golden - 1) / after * 2 * rest)
    _, found = ascent([1.0, 1.1], eta=2.0, accelerate=True)
    assert found.t == 1.0
    np.testing.assert_allclose(found.z, found.y)
    _, found = ascent([1.0, 0.9, 0.8], eta=2.0, accelerate=True, slopes=iter([1.0, 1.0, -0.1]))
    assert found.t == pytest.approx(golden)  # of 1.0: the residual points back


def test_svp_takes_no_more_steps_than_allowed_over_all_its_rounds():
    """A start in the wrong directions is exchanged after a round; what the rounds have left is
    counted together."""
    rng = np.random.default_rng(0)
    for seed in range(2):
        a = rng.standard_normal((30, 3)) @ rng.standard_normal((3, 20)) + rng.standard_normal(
            (30, 20)
        )
        a[rng.random(a.shape) < 0.7] = np.nan
        a[np.arange(30), np.arange(30) % 20] = 1.0
        for most in (7, 30):
            model = SVP(3, tol=1e-10, max_iter=most, random_state=seed).fit(a)
            assert 1 <= model.n_iter_ <= most


def test_svp_leaves_a_stationary_point_whose_directions_are_not_the_largest():
    """At the third direction of diag(5, 4, 1) the gradient on the tangent space is 0, and a
    projection exchanges it for the first."""
    from eckart.complete.nuclear import svp
    from eckart.engines import engine_named
    from eckart.io.models.checkpoint import NOTHING
    from eckart.matrix import Observed
    from eckart.optim.tangent import Sampling
    from eckart.trace import silent

    a, engine = np.diag([5.0, 4.0, 1.0]), engine_named("cpu", 1)
    size = float(np.linalg.norm(a))
    with engine.at_work():
        pattern = Sampling(Observed.from_nan(a), engine)
        d = svp.TangentDescent(pattern, pattern.values(size, np.dtype(float)), Trace("r"), silent)
        third = d.point(np.eye(3)[:, 2:], np.array([1.0 / size]), np.eye(3)[:, 2:])
        found = svp._tangent_steps(
            d, third, 1, None, svp.Stop(1e-8, 1e-12, 50), np.random.default_rng(0), NOTHING
        )
    assert found.misfit == pytest.approx(np.sqrt(17.0) / size, rel=1e-6)


def test_a_number_of_samples_of_a_variational_network():
    pytest.importorskip("torch")
    x = np.random.default_rng(0).random((20, 4))
    model = Autoencoder(1, variational=1.0, max_iter=1, random_state=0).fit(x)
    assert model.sample(3, random_state=0).shape == (3, 4)
    for bad in (0, -1, 2.0):
        with pytest.raises(InputError, match=f"n_samples must be an int.*, got {bad}"):
            model.sample(bad)


def test_a_start_of_a_mixture_gives_every_group_a_thousandth_of_its_share():
    """Weights are counts, at least 0.001 N / k, added up to one; a group without rows begins at the
    mean of all."""
    from eckart.engines import engine_named
    from eckart.explain.mixtures.starts import LEAN, Sample, gaussians_from
    from eckart.matrix import Dense

    rng, engine = np.random.default_rng(0), engine_named("cpu", 1)
    x = rng.standard_normal((60, 2))
    with engine.at_work():
        sample = Sample(x, np.ones(60), x, engine.put(Dense(x), np.ones(60)), engine)
        q = np.column_stack([np.ones(60), np.zeros(60), np.zeros(60)])
        q[:20, 0], q[:20, 1] = 0.0, 1.0
        found = gaussians_from(sample, q, SimpleNamespace(kind="diag", admit=lambda found: found))
    counts = np.array([40.0, 20.0, 0.001 * 60 / 3])
    np.testing.assert_allclose(found.weights, counts / counts.sum())
    np.testing.assert_allclose(
        found.means, [x[20:].mean(axis=0), x[:20].mean(axis=0), x.mean(axis=0)], atol=1e-12
    )
    scatter = np.array([40 * x[20:].var(axis=0), 20 * x[:20].var(axis=0), [0.0, 0.0]])
    trust, together = LEAN * 60 / 3, scatter.sum(axis=0) / 60
    leaning = (scatter + trust * together) / (np.array([40.0, 20.0, 0.0]) + trust)[:, None]
    np.testing.assert_allclose(found.spread, leaning, rtol=1e-6)


def test_what_is_added_to_a_variance_is_added_to_that_of_factors():
    x = np.random.default_rng(0).standard_normal((800, 3))
    model = GaussianMixture(
        1, covariance_type="factor", n_factors=1, reg_covar=0.3, random_state=0
    ).fit(x)
    assert np.diagonal(model.covariances_[0]) == pytest.approx(x.var(axis=0) + 0.3, rel=0.05)


def test_a_number_of_topics_is_judged_with_its_own_prior(monkeypatch):
    """Not below 0.001, at which a document of new words would have no share to begin with."""
    from eckart.explain.topics import judge

    told, original = [], judge.document_completion

    def completion(*args, prior, **more):
        told.append(np.asarray(prior))
        return original(*args, prior=prior, **more)

    monkeypatch.setattr(judge, "document_completion", completion)
    x = np.random.default_rng(0).poisson(0.6, (60, 20)).astype(float)
    for prior, used in ((0.02, 0.02), (1e-5, 1e-3)):
        judge.select_topics(
            LDA(2, learning_method="cvb0", doc_topic_prior=prior, max_iter=2, random_state=0),
            x,
            (2,),
        )
        np.testing.assert_allclose(told[-1], used)


def test_batches_of_documents_in_parts_hold_every_document_once():
    from eckart.explain.topics.documents import as_counts, batches
    from eckart.io.read import read
    from eckart.matrix_blocks import of_parts
    from eckart.matrix_parts import MemoryParts

    rows = np.random.default_rng(0).poisson(1.0, (23, 6)).astype(float) + 1.0
    rows[:, 0] = np.arange(1, 24)  # the name of the document
    whole = as_counts(read(rows), "LDA")
    order = np.random.default_rng(1).permutation(23)
    for x, wanted in ((whole, order), (of_parts(MemoryParts(whole, 5)), None)):
        found = np.concatenate([part.to_scipy().toarray() for part in batches(x, 4, order)])
        if wanted is not None:
            np.testing.assert_array_equal(found, rows[wanted])
        np.testing.assert_array_equal(found[np.argsort(found[:, 0])], rows)


def test_bins_of_time_that_never_moved_have_a_vague_prior():
    """Gamma(VAGUE + n / 2) / (VAGUE + sum of squares / 2) for the factors of all bins and for their
    biases, also where all squares are 0."""
    from eckart.complete.bayes.features import VAGUE
    from eckart.complete.bayes.times import TimedChain

    chain = object.__new__(TimedChain)
    chain.bins, chain.rng = SimpleNamespace(rows=7), np.random.default_rng(0)
    gram = np.diag([0.0, 0.0, 4.0])
    mean, precision, root = chain._prior(chain.bins, np.zeros(3), gram, None)
    drawn = np.random.default_rng(0).gamma(0.5 * 7 * np.array([2.0, 1.0]) + VAGUE) / (
        np.array([0.0, 2.0]) + VAGUE
    )
    np.testing.assert_allclose(np.diagonal(precision), [drawn[0], drawn[0], drawn[1]])
    np.testing.assert_allclose(root @ root, precision)
    assert not mean.any()


def test_pairs_of_a_partition_are_whole_numbers_of_their_scale():
    """Neighbours at distance 1 and 2 weigh 1 and 1/2: twice that is counted, and divided when the
    partitions are added."""
    from eckart.embed.collected import _pairs
    from eckart.engines.protocol import PairRule

    found = _pairs({}, PairRule((2.0, 1.0), 2.0), [["a", "b", "c"], ["a", "b"]], ["a", "b", "c"])
    np.testing.assert_array_equal(found.toarray(), [[0, 4, 1], [4, 0, 2], [1, 2, 0]])


def test_a_step_of_thresholds_is_halved_until_the_loss_falls():
    from eckart.certify.stationary import RidgePoint
    from eckart.complete.factors.majorise import threshold_step
    from eckart.terms import loss_from

    loss = loss_from({"name": "ordered", "levels": [1.0, 2.0, 3.0], "thresholds": [-1.0, 1.0]})
    least = 0.7  # how far the thresholds may move before the loss rises

    def loss_sums(x, moved, *_, **__):
        return SimpleNamespace(value=10.0 if abs(moved.thresholds[1] - 1.0) > least else 4.0)

    engine = SimpleNamespace(
        threshold_sums=lambda *_, **__: SimpleNamespace(
            value=5.0, gradient=np.array([10.0, -10.0]), bend=np.eye(2)
        ),
        loss_sums=loss_sums,
    )
    found = threshold_step(
        SimpleNamespace(x=None), RidgePoint(None, None, None, None, 0.0, loss=loss), engine
    )
    np.testing.assert_allclose(found.loss.thresholds, [-1.625, 1.625])  # 10 / 16


def test_rounding_of_a_covariance_is_that_of_its_largest_mean():
    from eckart.reduce.covariance import Covariance

    c = Covariance(np.array([1.0, -50.0, 3.0]), 1.0, 10.0, 10, np.dtype(np.float32), True, None)
    assert c.rounding == pytest.approx(3 * (4 * np.finfo(np.float32).eps * 50.0) ** 2)


def test_perplexity_is_compared_with_that_of_the_last_look():
    """Looks after every 2 steps, from the second on; the first value of a trace is that of the
    start."""
    model = LDA(2, evaluate_every=2, perp_tol=0.5)
    trace = Trace(
        "log-likelihood of a token",
        values=list(-np.log([9.0, 8.0, 7.0, 6.9, 6.6])),
        seconds=[0.0] * 5,
    )
    assert model._enough(trace)[0]  # 7 -> 6.6
    assert "perplexity 6.6" in model._enough(trace)[1]
    model.perp_tol = 0.3
    assert not model._enough(trace)[0]
    short = Trace("log-likelihood of a token", values=trace.values[:3], seconds=[0.0] * 3)
    model.perp_tol = 5.0
    assert not model._enough(short)[0]
    short.add(-1.0)
    assert model._enough(short) == (False, "")


def test_nothing_larger_is_looked_for_where_one_direction_is_left():
    from eckart.reduce.power import _larger

    a = np.diag([3.0, 2.0, 1.0])
    rng = np.random.default_rng(0)
    last = np.eye(3)[:, 2]
    assert _larger(lambda v: a @ v, np.eye(3)[:, :2], last, 1.0, rng) is None
    assert abs(_larger(lambda v: a @ v, np.eye(3)[:, :0], last, 1.0, rng) @ last) < 0.5


def test_rebuilt_rows_have_the_precision_of_their_codes():
    pytest.importorskip("torch")
    model = Autoencoder(1, max_iter=1, random_state=0).fit(np.random.default_rng(0).random((20, 4)))
    for kind, wanted in (
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.int64, np.float64),
    ):
        assert model.inverse_transform(np.ones((2, 1), kind)).dtype == wanted


def test_the_step_after_a_component_was_set_anew_may_fall():
    """Step s of a trace is the value before it: what was done there shows in the next one, and no
    other fall is excused."""
    from eckart.engines import engine_named
    from eckart.explain.mixtures.gaussian_solve import certify, from_factors
    from eckart.explain.mixtures.gaussian_steps import GaussianProblem, Rules
    from eckart.matrix import Dense

    x, engine = np.random.default_rng(0).standard_normal((60, 2)), engine_named("cpu", 1)
    model = GaussianMixture(1, reg_covar=0.0, random_state=0).fit(x)
    with engine.at_work():
        problem = GaussianProblem(engine.put(Dense(x)), Rules("full", np.full(2, 1e-9)), engine)
        trace = Trace("bound", values=[-5.0, -4.0, -4.5, -3.0], seconds=[0.0] * 4)
        falls = {
            step: certify(
                problem, from_factors(model.fit_.factors), trace, 1e-3, events=[{"step": step}]
            )["largest fall"]
            for step in (0, 1, 2)
        }
    assert falls[1] == 0.0
    assert falls[0] > 0.0 < falls[2]


def test_rows_alike_by_their_cosine_also_beside_an_empty_row():
    from eckart.complete.items.item_model import rows_alike
    from eckart.engines import engine_named
    from eckart.index.labels import Labels
    from eckart.matrix import Observed

    a = np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 5.0]])
    x, engine = Observed.from_nan(np.where(a > 0, a, np.nan)), engine_named("cpu", 1)
    with engine.at_work():
        found = rows_alike(x, Labels(None, 4, "row"), 0, 2, engine)
    cosine = a @ a[0] / np.maximum(np.linalg.norm(a, axis=1) * np.linalg.norm(a[0]), 1e-300)
    assert list(found.columns[0])[:2] == [1, 3]
    np.testing.assert_allclose(np.asarray(found.scores[0])[:2], cosine[[1, 3]], rtol=1e-6)


def test_seeds_of_topics_come_to_the_priors_of_words():
    from eckart.explain.topics.priors import given_priors

    eta, names = np.array([0.1, 0.2, 0.3]), np.array(["a", "b", "c"], object)
    seeds = ({0: ["a"], 1: ["c"]}, 5.0, names)
    alone, both = given_priors("auto", 0.5, seeds, 3, 2), given_priors("auto", eta, seeds, 3, 2)
    assert alone.boost[0, 0] > 0 < alone.boost[2, 1]
    np.testing.assert_allclose(both.boost, eta[:, None] + alone.boost)
    assert both.eta == 0.0


def test_weights_of_heavy_tails_are_conditional_means():
    """(nu + d) / (nu + (u - m)^T L (u - m)) with L m as it is given: rows far from their prior mean
    weigh less."""
    from eckart.complete.bayes.posterior import _weights

    rng = np.random.default_rng(0)
    lam, m, u = (
        np.array([[2.0, 0.3], [0.3, 1.0]]),
        rng.standard_normal((4, 2)),
        rng.standard_normal((4, 2)),
    )
    off = u - m
    wanted = (5.0 + 2) / (5.0 + np.einsum("na,ab,nb->n", off, lam, off))
    np.testing.assert_allclose(_weights(u, m @ lam, lam, 5.0)[:, 0], wanted)


def test_a_product_is_asked_for_ahead_where_one_more_step_would_not_end():
    """A step multiplies the missing energy by about last / before: the next one would leave last^2
    / before. After one step nothing is known."""
    from eckart.reduce.krylov import _seems_far

    told = Trace("missing")
    assert _seems_far(told, 1e-3)
    told.values[:] = [1e-9]
    assert _seems_far(told, 1e-3)
    told.values[:] = [1e-5, 1e-1, 1e-2]  # the next: 1e-3
    assert _seems_far(told, 0.9e-3)
    assert not _seems_far(told, 1.1e-3)


def test_a_cache_whose_name_is_taken_by_a_folder_is_refused_before_reading(tmp_path):
    from eckart import FileError, sequences

    (tmp_path / "text.txt").write_text("a b a b\n")
    (tmp_path / "kept.json").mkdir()
    with pytest.raises(FileError, match="path must be the name of a file, got the folder"):
        sequences(tmp_path / "text.txt", min_count=1, cache=tmp_path / "kept")


def test_smooth_inverse_frequencies_of_few_words_too():
    """a / (a + p(word)), p the share of the word in all counts, however few they are."""
    from eckart import Vectors
    from eckart.embed.vectors import SMOOTH

    found = Vectors(["a", "b", "c"], np.eye(3), counts=np.array([3, 2, 1]))
    weights = SMOOTH / (SMOOTH + np.array([3, 2, 1]) / 6)
    np.testing.assert_allclose(
        found.mean("a c", "sif"),
        (weights[0] * np.eye(3)[0] + weights[2] * np.eye(3)[2]) / (weights[0] + weights[2]),
    )


def test_what_was_set_by_hand_says_that_it_was_not_measured():
    """A check of 1 where 0 was to be: it never holds, and its size says nothing."""
    models = PCA(1), GaussianMixture(1, covariance_type="diag")
    models[0].components_, models[0].mean_, models[0].explained_variance_ = (
        np.eye(3)[:1],
        np.zeros(3),
        [1.0],
    )
    models[1].weights_, models[1].means_, models[1].covariances_ = (
        np.ones(1),
        np.zeros((1, 2)),
        np.ones((1, 2)),
    )
    for model in models:
        (check,) = model.certificate_.checks
        assert (check.name, check.value, check.limit) == ("measured", 1.0, 0.0)
        assert not model.certificate_.holds


def test_strengths_are_brought_together_from_twenty_medians():
    from eckart.complete.factors.alternate import log_scaling

    for median in (0.1, 10.0):
        strengths = np.full((5, 4), median)
        for most, tamed in ((19 * median, False), (21 * median, True)):
            strengths[0, 0] = most
            found = log_scaling(eckart.observed(strengths), asked=False, usual=True)
            assert (found is not None) is tamed
            assert log_scaling(eckart.observed(strengths), asked=False, usual=False) is None
        assert found.median == pytest.approx(median)
        assert found.mean == pytest.approx((19 * np.log(2) + np.log1p(21)) / 20)


def test_an_interrupt_before_the_first_sweep_has_no_answer():
    from eckart.explain.parts.loop import alternate

    def stop(*args):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        alternate(
            SimpleNamespace(engine=engine_named("cpu", 1), rows=stop, scale=1.0),
            np.ones((3, 1)),
            np.ones((2, 1)),
        )


def test_a_sketch_is_made_where_it_is_six_times_smaller_and_there_is_room(monkeypatch):
    """It has k + 10 rows and columns, beside rows x n of the data; with it 2 (k + 10) + 5 k numbers
    of each row are held."""
    from eckart import fit
    from eckart.explain.parts.start import worthwhile

    def asked(rows, n, kind="dense"):
        x = SimpleNamespace(shape=(rows, n), kind=kind, dtype=np.dtype(np.float64))
        return worthwhile(SimpleNamespace(totals=SimpleNamespace(rows=rows), x=x), 2)

    monkeypatch.setattr(fit, "available_memory", lambda: 1e12)
    least = 6 * 12  # of 1 / (1 / rows + 1 / n)
    assert asked(2 * least + 1, 2 * least + 1)
    assert not asked(2 * least - 1, 2 * least - 1)
    assert not asked(2 * least + 1, 2 * least + 1, "counts")
    for bytes_, wanted in (
        (1000 * (2 * 12 + 5 * 2) * 8, True),
        (1000 * (2 * 12 + 5 * 2) * 8 - 1, False),
    ):
        monkeypatch.setattr(fit, "available_memory", lambda free=bytes_: free)
        assert asked(1000, 1000) is wanted


def test_models_are_refused_where_their_factors_do_not_fit_into_memory(monkeypatch):
    """BayesianMF: (rows + columns) (k + 1) numbers for each draw that is kept and twice for each
    chain; ALS: (rows + columns) k."""
    from eckart import fit

    x = eckart.observed(np.arange(1.0, 31.0).reshape(6, 5))
    chain = BayesianMF(2, n_samples=6, n_chains=3)
    for model, numbers in ((chain, 11 * 3 * (3 * 2 + 6)), (ALS(2), 11 * 2)):
        monkeypatch.setattr(fit, "available_memory", lambda free=numbers * 8: free)
        model._check(x)
        monkeypatch.setattr(fit, "available_memory", lambda free=numbers * 8 - 1: free)
        with pytest.raises(
            InputError,
            match=r"n_components must be a number whose arrays fit in memory: they would need 0\.0 GiB, 0\.0",
        ):
            model._check(x)


def test_noise_precisions_stay_between_a_billionth_and_a_billion():
    from eckart.complete.bayes.chain import FactorChain

    chain = object.__new__(FactorChain)
    chain.seed, chain.sweeps, chain.rng = 1, 1, np.random.default_rng(0)
    for total, scale in ((0.0, 1e-9), (1e30, 1e9), (5.0, None)):
        told = []

        def drawn(*args, total=total, told=told):
            told.append(args)
            return SimpleNamespace(values=np.ones((5, 1)), total=total, logs=0.0, heavy_logs=0.5)

        side = SimpleNamespace(rows=5, shape=4.0, scale=2.0, counts=np.ones((5, 1)))
        chain.engine = SimpleNamespace(precision_rows=drawn)
        chain._draw_precisions(side, np.ones((5, 1)), 2, learn_scale=True)
        assert told[0][0] == (1, 1, 2)
        assert told[0][3:] == (4.0, 2.0, 1e-9)
        assert 1e-9 <= side.scale <= 1e9 if scale is None else side.scale == pytest.approx(scale)
        assert side.logs == 0.5


def test_the_price_of_a_loss_is_not_chosen_by_half_a_fit(monkeypatch):
    from eckart.complete.nuclear import spectral_completer as losses
    from eckart.complete.nuclear.operators import Solution
    from eckart.terms import loss_named
    from eckart.trace import StopReason

    x = eckart.observed(np.random.default_rng(0).poisson(3.0, (12, 6)).astype(float))
    half = Solution(
        np.zeros((12, 0)),
        np.zeros(0),
        np.zeros((6, 0)),
        Trace("x", reason=StopReason.INTERRUPTED),
        {},
    )
    monkeypatch.setattr(losses, "solve", lambda *args, **more: half)
    with pytest.raises(KeyboardInterrupt):
        losses.choose_tau(
            x,
            loss_named("poisson"),
            None,
            max_rank=None,
            engine=engine_named("cpu", 1),
            rng=np.random.default_rng(0),
        )


def test_a_recovery_drops_singular_values_below_a_millionth_that_the_entries_do_not_ask_for():
    """The second direction stands where nothing was observed: it stays at 1e-5 of the largest, and
    goes at 1e-7."""
    from eckart.complete.nuclear import exact
    from eckart.optim.tangent import Sampling
    from eckart.trace import silent

    a = np.full((4, 4), np.nan)
    a[:3, :3] = 1.0
    engine = engine_named("cpu", 1)
    first, last = np.array([1.0, 1.0, 1.0, 0.0]) / np.sqrt(3), np.eye(4)[3]
    with engine.at_work():
        search = exact._Search(
            Sampling(eckart.observed(a), engine),
            np.full(9, 1 / 3),
            2,
            1e-12,
            5,
            np.random.default_rng(0),
            Trace("r"),
            silent,
        )
        for small, kept in ((1e-5, 2), (1e-7, 1)):
            both = np.column_stack([first, last])
            found = search.of_least_rank(exact.Found(0.0, (both, np.array([1.0, small]), both)))
            assert len(found.triples[1]) == kept
            assert found.misfit <= exact.FITS


def test_links_of_many_features_are_solved_to_their_tolerance_at_any_strength():
    """(X^T X + lambda I) B = right to 1e-5 in the norm of the preconditioner; the steps end there
    and not before."""
    from scipy import sparse

    from eckart.complete.bayes.features import TOLERANCE, Iterative

    rng = np.random.default_rng(0)
    x = sparse.csr_array((rng.random((30, 20)) < 0.4) * 1.0)
    for strength in (1e-2, 1.0, 1e4):
        link = Iterative(x, 2)
        link.strength = strength
        right, gram = rng.standard_normal((20, 2)), (x.T @ x).toarray() + strength * np.eye(20)
        b, scale = link._solve(right), 1 / (link.diagonal + strength)[:, None]
        rest = right - gram @ b
        assert (
            np.sum(rest * scale * rest, axis=0)
            <= 1.01 * TOLERANCE**2 * np.sum(right * scale * right, axis=0)
        ).all()
        assert np.abs(b - np.linalg.solve(gram, right)).max() <= 1e-3 * np.abs(b).max() * max(
            1.0, np.linalg.cond(gram) / 100
        )


def test_soft_impute_takes_no_more_steps_than_allowed_over_all_its_rounds():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((30, 4)) @ rng.standard_normal((4, 20)) + 0.3 * rng.standard_normal(
        (30, 20)
    )
    a[rng.random(a.shape) < 0.4] = np.nan
    a[np.arange(30), np.arange(30) % 20] = 1.0
    for most in (3, 5, 9, 20):
        for method in ("descent", "proximal"):
            assert (
                1
                <= SoftImpute(tau=0.5, tol=1e-9, max_iter=most, method=method, random_state=0)
                .fit(a)
                .n_iter_
                <= most
            )


def test_first_batches_are_kept_until_there_are_five_rows_for_each_number_of_the_means():
    """max(1000, 50 k, 5 k n) rows: before, all of them are fitted anew with every batch."""
    rng = np.random.default_rng(0)
    for n, k, rows, kept in (
        (100, 3, 1499, True),
        (100, 3, 1500, False),
        (2, 2, 999, True),
        (2, 2, 1000, False),
        (1, 21, 1049, True),
        (1, 21, 1050, False),
    ):
        model = GaussianMixture(
            k, covariance_type="spherical", max_iter=1, n_init=1, random_state=0
        )
        model.partial_fit(rng.standard_normal((rows, n)))
        assert ("rows" in model._stream) is kept


def test_parallel_analysis_counts_what_it_has_seen():
    """Three rows have two directions around their mean: both may lie above what shuffling shows, a
    third is not there."""
    from eckart.reduce.select import _parallel
    from eckart.trace import silent

    seen = 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = np.outer([1.0, 0.0, -1.0], 10 * np.sign(rng.standard_normal(60))) + np.outer(
            [1.0, -2.0, 1.0], rng.standard_normal(60)
        )
        thresholds, count = _parallel(x, 3, 9, rng, silent)
        assert count <= len(thresholds) <= 2
        seen += count == 2
    assert seen


def test_layers_of_a_file_must_be_those_of_a_coder():
    from eckart import FileError

    pytest.importorskip("torch")
    model = Autoencoder(2)
    good = {"kind": "coder", "code": 2, "link": "squared", "rounds": 1}
    network = SimpleNamespace(architecture=good, k=2, n=5, extras={"per_row": np.ones(1)})
    model._fits(network, 5)
    for change, out in (({"kind": "head"}, 5), ({"code": 3}, 5), ({"link": "other"}, 5), ({}, 4)):
        network.architecture = good | change
        with pytest.raises(
            FileError, match="layers must have 2 numbers between, got layers from 5 to"
        ):
            model._fits(network, out)
    for rounds in (-1, 1.0, None, 10**6):
        network.architecture = good | {"rounds": rounds}
        with pytest.raises(FileError, match="rounds must be an int from 0 to 10, got"):
            model._fits(network, 5)


def test_loadings_as_a_table_are_named_from_one():
    import pandas as pd

    x = np.random.default_rng(0).standard_normal((20, 3))
    model = PCA(2).fit(pd.DataFrame(x, columns=list("abc")))
    table = model.loadings()
    assert list(table) == ["column", "component 1", "component 2"]
    assert table["column"] == list("abc")
    np.testing.assert_array_equal(table["component 2"], model.loadings_[:, 1])


def test_a_covariance_multiplies_inside_of_an_engine_as_outside():
    from eckart.matrix import Dense
    from eckart.reduce.covariance import Covariance
    from eckart.trace import silent

    rng, engine = np.random.default_rng(0), engine_named("cpu", 1)
    x, v = rng.standard_normal((30, 5)) + 3.0, rng.standard_normal((5, 2))
    with engine.at_work():
        c = Covariance.by_products(engine, engine.put(Dense(x)), True, None, silent)
        wanted = np.cov(x.T, bias=True) @ v
        np.testing.assert_allclose(c.product(v), wanted, rtol=1e-10)
        np.testing.assert_allclose(engine.get(c.inside(engine.take(v))), wanted, rtol=1e-10)


def test_the_mean_of_a_scaled_model_is_set_in_the_units_of_the_data():
    x = np.random.default_rng(0).standard_normal((40, 3)) * [1.0, 10.0, 100.0] + [1.0, 20.0, 300.0]
    model = PCA(2, scale=True).fit(x)
    before = model.transform(x)
    model.mean_ = model.mean_
    np.testing.assert_allclose(model.transform(x), before, atol=1e-9)


def test_too_few_entries_to_hide_some_have_a_small_price():
    """A fiftieth of the norm of the entries: below ten of them a tenth would be none."""
    from eckart.complete.nuclear.soft_impute import choose_tau

    a = np.array([[3.0, np.nan, 4.0]])
    how = {"engine": engine_named("cpu", 1), "rng": np.random.default_rng(0)}
    assert choose_tau(eckart.observed(a), **how) == (pytest.approx(5.0 / 50), [])


def test_a_rate_that_leaves_the_numbers_is_quartered_for_batches_too():
    from eckart import LinearAutoencoder

    x = np.random.default_rng(0).standard_normal((60, 4)) @ np.diag([4.0, 2.0, 0.1, 0.1])
    with np.errstate(all="ignore"):
        model = LinearAutoencoder(
            1, batch_size=10, learning_rate=1e4, max_iter=40, random_state=0
        ).fit(x)
    assert np.isfinite(model.components_).all()
    assert not np.isfinite(model.fit_.trace.values).all()  # it was too large
    assert np.abs(np.linalg.norm(model.components_)) == pytest.approx(1.0)


def test_learned_priors_of_topics_stay_in_their_range():
    """From 1e-4 to 100: counts that all lie in one topic would send the others to 0, equal ones to
    infinity."""
    from eckart.explain.topics.priors import learned_alpha

    alone = np.zeros((50, 2))
    alone[:, 0] = 30.0
    even = np.full((50, 2), 1000.0)
    alpha, equal = np.array([0.5, 0.5]), np.array([150.0, 150.0])
    for _ in range(60):
        alpha, equal = learned_alpha(alone, alpha), learned_alpha(even, equal)
    assert alpha[1] == pytest.approx(1e-4)
    assert equal == pytest.approx([100.0, 100.0])


def test_a_killed_climb_goes_on_the_same_from_the_head_of_every_step():
    """Also from between a small rise and the step after it, which decides whether the climb
    ends."""
    import copy

    from eckart.explain.em import climb

    bounds = 10 + np.cumsum([0.0, 4.0, 1e-4, 3.0, 2.0, 1e-4, 1e-5, 1.0])

    class Steps:
        def expect(self, theta):
            return SimpleNamespace(bound=2 * bounds[theta], weight=2.0, theta=theta)

        def maximise(self, statistics):
            return statistics.theta + 1

    class Kept:
        def __init__(self, state=None):
            self.state, self.offered = state, []

        def last(self):
            return self.state

        def offer(self, state):
            self.offered.append(copy.deepcopy(state()))

    whole = Kept()
    end = climb(Steps(), 0, tol=1e-3, memory=whole)
    assert end.theta == 5  # the first small rise had a larger one behind it
    assert len(whole.offered) == 6
    for state in whole.offered:
        again = climb(Steps(), 0, tol=1e-3, memory=Kept(state))
        assert (again.theta, again.trace.values, again.trace.reason) == (
            end.theta,
            end.trace.values,
            end.trace.reason,
        )


def test_the_noise_of_leading_eigenvalues_is_the_mean_of_what_they_leave():
    """Of a square matrix k values lie above 16/3 times (total - their sum) / (n - k): here 100 / 9
    for one of them, which asks 59.3 of the second."""
    from eckart.reduce.rank import gavish_donoho

    for second, k in ((58.0, 1), (61.0, 2)):
        assert gavish_donoho(np.array([1000.0, second]), 10, 10, 1100.0) == k


def test_the_subspace_of_rows_with_gaps_is_that_with_means_in_them():
    from eckart.matrix import Dense
    from eckart.reduce.compare import principal_subspace

    rng = np.random.default_rng(0)
    x = (
        rng.standard_normal((40, 2)) @ rng.standard_normal((2, 5))
        + [0.0, 10.0, 20.0, 30.0, 40.0]
        + 0.1 * rng.standard_normal((40, 5))
    )
    x[rng.random(x.shape) < 0.2] = np.nan
    filled = np.where(np.isnan(x), np.nanmean(x, axis=0), x)
    wanted = np.linalg.svd(filled - filled.mean(axis=0))[2][:2].T
    for gappy in (Dense(x), eckart.observed(x)):
        found = principal_subspace(gappy, 2)
        np.testing.assert_allclose(found @ found.T, wanted @ wanted.T, atol=1e-8)


def test_means_are_taken_off_products_where_data_are_large_and_means_are_small(monkeypatch):
    """x^T (x v) less its mean, without a copy of centered rows: from LARGE entries on, and where
    the mean is no more than IMPLICIT times the variance."""
    from eckart.matrix import Dense
    from eckart.reduce import covariance
    from eckart.trace import silent

    monkeypatch.setattr(covariance, "LARGE", 100)
    engine = engine_named("cpu", 1)
    with engine.at_work():
        for rows, shift, implicit in (
            (20, 0.0, True),
            (19, 0.0, False),
            (20, 9.0, True),
            (20, 11.0, False),
        ):
            x = (
                np.tile([[1.0] * 5, [-1.0] * 5], (10, 1))[:rows] + shift
            )  # the mean of the columns' squares is shift^2, their variance 1
            assert (
                covariance.Covariance.by_products(
                    engine, engine.put(Dense(x)), True, None, silent
                ).implicit
                is implicit
            )


def test_two_hundred_million_tokens_are_not_sampled_one_by_one():
    from eckart.explain.topics.documents import as_counts
    from eckart.io.read import read

    for tokens, method in ((1.9e8, "gibbs"), (2.1e8, "cvb0")):
        x = as_counts(read(np.array([[tokens / 2, 0.0], [1.0, tokens / 2]])), "LDA")
        assert LDA(2)._method(x)[0] == method


def test_lists_of_members_reach_some_times_deeper_than_the_list_they_are_judged_by():
    """Each member gives its DEPTH * at best columns, and LEAST of them at the least."""
    from scipy import sparse

    from eckart.complete.items.blend_weights import DEPTH, LEAST, Pool

    scores = np.random.default_rng(0).random((2, 4 * LEAST + 100 * DEPTH))
    for at, depth in ((1, max(DEPTH, LEAST)), (LEAST, DEPTH * LEAST)):
        pool = Pool.of([scores], sparse.csr_array(scores.shape), at)
        assert (pool.columns >= 0).sum(axis=1).tolist() == [min(depth, scores.shape[1])] * 2


def test_a_projected_step_must_lower_the_misfit_by_its_gain(monkeypatch):
    """A trial counts where its value is below (1 - gain) of the one before; else the step is
    halved, and none is found where all fail."""
    from eckart.complete.nuclear import svp

    told = []

    def tried(values):
        left = iter(values)
        monkeypatch.setattr(
            svp, "Operator", lambda pattern, entries, *more: told.append(float(entries[0]))
        )
        monkeypatch.setattr(
            svp,
            "partial_svd",
            lambda *args, **more: SimpleNamespace(
                left=None, values=None, right=None, spare="spare"
            ),
        )
        d = SimpleNamespace(pattern=None, point=lambda *args: SimpleNamespace(value=next(left)))
        at = SimpleNamespace(u=None, s=None, v=np.ones((2, 1)), rest=np.ones(1), value=1.0)
        told.clear()
        return svp._projected(d, at, 1, 8.0, None, np.random.default_rng(0), gain=0.1)

    assert tried([0.89])[0].value == 0.89
    assert told == [8.0]
    assert tried([1.05, 0.91, 0.89])[0].value == 0.89
    assert told == [8.0, 4.0, 2.0]
    assert tried([0.95] * svp.CUTS) is None


def test_sweeps_of_chains_are_paid_for_by_their_multiplications(monkeypatch):
    """n_chains (2 nnz (k + 1)^2 + (N + n) (k + 1)^3 / 3) in a sweep; never fewer than were asked
    for, never more than LONGER times these."""
    from eckart.complete.bayes import gibbs

    x = Observed.from_nan(np.where(np.eye(4, 3) > 0, np.nan, 1.0))
    one = 3 * (2 * 9 * 3**2 + 7 * 3**3 / 3)
    for work, sweeps in ((50.5, 50), (10, 20), (1e6, 20 * gibbs.LONGER)):
        monkeypatch.setattr(gibbs, "WORK", work * one)
        assert gibbs.budget_of(x, 2, 3, 20) == sweeps


def test_a_column_that_nobody_of_a_component_saw_says_nothing_of_it():
    from eckart.explain.mixtures.families_discrete import Bernoulli

    family = Bernoulli()
    found = family.weighted_fit(
        np.array([[1.0, np.nan], [0.0, np.nan], [1.0, np.nan], [1.0, np.nan]]), np.ones((4, 1))
    )
    np.testing.assert_allclose(found["means"], [[0.75, 0.5]])


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_equations_of_features_are_solved_to_a_share_of_their_right_side(rng, size):
    from scipy import sparse

    from eckart.complete.bayes.features import TOLERANCE, Iterative

    x = sparse.random_array((60, 20), density=0.3, rng=rng, format="csr")
    link, right = Iterative(x, 2), size * rng.standard_normal((20, 2))
    a = (x.T @ x).toarray() + np.eye(20)
    wanted = np.linalg.solve(a, right)
    found = link._solve(right)
    assert 0 < np.linalg.norm(found - wanted) <= 20 * TOLERANCE * np.linalg.norm(wanted)
