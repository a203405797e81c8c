"""GloVe: one objective, two solvers, a monotone descent, evidence at the returned point, and fits
that go on."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import eckart
from eckart import Counts, GloVe, InputError, cooccurrence, sequences
from eckart.embed import glove_adagrad, glove_als
from eckart.embed.glove import descend
from eckart.trace import StopReason

SOLVERS = ("als", "adagrad")


@pytest.fixture(scope="module")
def text():
    """Sentences about two subjects, with a word of the other one now and then: of pairs that never
    occur GloVe learns nothing."""
    rng = np.random.default_rng(4)
    words = [[f"{s}{i}" for i in range(n)] for s, n in (("the", 10), ("cook", 30), ("sail", 30))]
    out = []
    for subject in rng.integers(2, size=1500):
        kinds = rng.choice(3, 8, p=[0.4, 0.05, 0.55] if subject else [0.4, 0.55, 0.05])
        out.append([words[kind][rng.integers(len(words[kind]))] for kind in kinds])
    return sequences(out)


@pytest.fixture(scope="module")
def counts(text):
    return cooccurrence(text)


def loss(n, f, n_max=10.0, power=0.75):
    """By the definition, entry by entry."""
    a = n.to_scipy().tocoo()
    i, j = a.coords
    d = (
        np.log(a.data)
        - np.einsum("pk,pk->p", f.vectors[i].astype(float), f.context[j])
        - f.bias[i]
        - f.context_bias[j]
    )
    return float(np.sum(np.minimum(1, (a.data / n_max) ** power) * d**2)) / a.nnz


@pytest.mark.parametrize(("patience", "steps"), [(1, 4), (3, 9)])
def test_a_loss_that_stands_still_once_is_no_end_of_epochs(patience, steps):
    """Vectors of AdaGrad begin near a saddle: a loss of 3.8, 0.8, 0.1396, 0.1397 went on to 0.002,
    and was taken for converged."""
    way = [3.8, 0.8, 0.1396, 0.1397, 0.1395, 0.05, 0.05, 0.05, 0.05, 0.001]
    state = SimpleNamespace(losses=[])
    step = lambda s: SimpleNamespace(losses=way[: len(s.losses) + 1])  # noqa: E731
    state, trace = descend(
        state, step, max_iter=10, tol=1e-4, patience=patience, name="", pack=vars
    )
    assert state.losses == way[:steps]
    assert trace.reason is StopReason.CONVERGED
    assert (glove_als.PATIENCE, glove_adagrad.PATIENCE) == (1, 3)


def test_sweeps_end_by_what_they_lower():
    """The loss alone rose from one sweep to the next, while with its ridge it fell by 4 %: this is
    no end."""
    losses, objective = (
        [0.0015, 0.00077, 0.00078, 0.00079, 0.0008],
        [0.8, 0.75, 0.7, 0.68, 0.66, 0.64, 0.64, 0.63999, 0.6, 0.5],
    )

    def step(s):
        return SimpleNamespace(
            losses=losses[: len(s.losses) + 1], objective=objective[: 2 * len(s.losses) + 2]
        )

    state, trace = descend(
        SimpleNamespace(losses=[]), step, max_iter=5, tol=1e-4, patience=1, name="", pack=vars
    )
    assert len(state.losses) == 4
    assert trace.reason is StopReason.CONVERGED


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_loss_is_that_of_the_definition(counts, solver):
    for how in ({}, {"n_max": 3.0, "power": 0.5}):
        model = GloVe(4, solver=solver, max_iter=5, random_state=0, **how).fit(counts)
        want = loss(counts, model.fit_.factors, **{"n_max": 10.0, "power": 0.75} | how)
        assert model.loss_ == pytest.approx(want, rel=1e-4)
        assert model.fit_.trace.values[-1] == pytest.approx(want, rel=1e-3)
        assert len(model.fit_.trace) == model.n_iter_ == 5


def test_als_never_rises_and_ends_at_a_stationary_point(counts):
    model = GloVe(4, max_iter=60, tol=0.0, random_state=0).fit(counts)
    c = model.certificate_
    assert c.holds, c
    assert c.kind == "stationary"
    assert c["never rises"] == 0
    assert c["relative gradient"] < 5e-3
    falls = np.diff(model.fit_.plan["objective"])
    assert len(falls) == 2 * model.n_iter_ - 1
    assert falls.max() <= 1e-5 * model.fit_.plan["objective"][0]


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 2**31))
def test_als_never_rises_on_any_counts(n, k, seed):
    rng = np.random.default_rng(seed)
    a = rng.poisson(1.5, (n, n)) * rng.lognormal(0, 2, (n, n))
    a[0, 1] = 1.0
    model = GloVe(k, max_iter=8, random_state=seed).fit(Counts.from_scipy(sparse.csr_array(a)))
    assert model.certificate_["never rises"] <= 1e-5
    assert np.isfinite(model.components_).all()


def test_the_gradient_is_that_of_finite_differences(counts):
    """The certificate's gradient, at a point that is not critical, against differences of the
    loss."""
    model = GloVe(3, solver="adagrad", max_iter=2, random_state=0).fit(counts)
    f = model.fit_.factors
    pieces = ("vectors", "context", "bias", "context_bias")
    wide = type(f)(*(getattr(f, name).astype(np.float64) for name in pieces), None, f.columns)
    squares = {}
    for name in pieces:
        square = 0.0
        array = getattr(wide, name)
        flat = array.reshape(-1)
        for t in range(len(flat)):
            kept, step = flat[t], 1e-5
            values = []
            for sign in (1, -1):
                flat[t] = kept + sign * step
                values.append(loss(counts, wide))
            flat[t] = kept
            square += ((values[0] - values[1]) / (2 * step) * counts.nnz / 2) ** 2
        squares[name] = square
    a = counts.to_scipy().tocoo()
    i, j = a.coords
    weights = np.minimum(1, (a.data / 10) ** 0.75)
    pull = weights * (np.log(a.data) - wide.bias[i] - wide.context_bias[j])
    m = sparse.coo_array((pull, (i, j)), shape=a.shape).tocsr()
    size = np.sum((m @ wide.context) ** 2) + np.sum((m.T @ wide.vectors) ** 2)
    y = sparse.coo_array((weights * np.abs(np.log(a.data)), (i, j)), shape=a.shape)
    sums = np.sum(np.asarray(y.sum(axis=1)) ** 2) + np.sum(np.asarray(y.sum(axis=0)) ** 2)
    vectors, biases = (
        squares["vectors"] + squares["context"],
        squares["bias"] + squares["context_bias"],
    )
    want = np.sqrt(max(vectors / size, biases / sums))
    assert model.certificate_["relative gradient"] == pytest.approx(want, rel=1e-3)
    assert not model.certificate_.holds  # two epochs are not enough, and it says so


def test_full_rank_fits_every_pair():
    rng = np.random.default_rng(2)
    a = rng.lognormal(1, 1, (6, 6))
    n = Counts.from_scipy(sparse.csr_array(a))
    model = GloVe(6, l2=1e-6, max_iter=200, tol=0.0, random_state=0).fit(n)
    f = model.fit_.factors
    got = f.vectors @ f.context.T + f.bias[:, None] + f.context_bias
    np.testing.assert_allclose(got, np.log(a), atol=0.02)
    assert model.loss_ < 1e-4


def test_both_solvers_fit_the_same_objective(counts):
    als = GloVe(6, l2=1e-4, max_iter=40, random_state=0).fit(counts)
    ada = GloVe(6, solver="adagrad", max_iter=150, learning_rate=0.2, random_state=0).fit(counts)
    assert als.loss_ <= ada.loss_ * 1.01
    assert ada.loss_ < 1.25 * als.loss_
    assert als.certificate_["relative gradient"] < ada.certificate_["relative gradient"] < 0.2


@pytest.mark.parametrize("solver", SOLVERS)
def test_words_of_a_subject_are_near(text, solver):
    model = GloVe(5, solver=solver, max_iter=20 if solver == "als" else 100, random_state=0).fit(
        text
    )
    near = [word for word, _ in model.vectors_.neighbours("cook3", 10)]
    assert sum(word.startswith("cook") for word in near) >= 8
    f = model.fit_.factors
    np.testing.assert_array_equal(model.components_, f.vectors + f.context)
    model.set_params(add_context=False)
    np.testing.assert_array_equal(model.components_, f.vectors)


@pytest.mark.parametrize("solver", SOLVERS)
def test_threads_change_no_bit_and_seeds_do(solver):
    rng = np.random.default_rng(0)
    a = sparse.random_array(
        (1200, 1200),
        density=0.02,
        random_state=1,
        data_sampler=lambda size: rng.lognormal(1, 1, size),
    )
    n = Counts.from_scipy(a.tocsr())
    one, three, other = (
        GloVe(8, solver=solver, max_iter=3, random_state=seed, n_threads=t).fit(n)
        for seed, t in ((0, 1), (0, 3), (1, 1))
    )
    assert same(one, three)
    assert not same(one, other)


def same(a, b):
    names = ("vectors", "context", "bias", "context_bias")
    arrays = all(
        getattr(a.fit_.factors, n).tobytes() == getattr(b.fit_.factors, n).tobytes() for n in names
    )
    return arrays and a.fit_.trace.values == b.fit_.trace.values


class Killed(Exception):
    pass


def stopping(monkeypatch, solver, at, error):
    """Make the step number ``at`` fail."""
    module, name = (glove_als, "sweep") if solver == "als" else (glove_adagrad, "epoch")
    whole, calls = getattr(module, name), []

    def step(*args, **how):
        calls.append(1)
        if len(calls) == at:
            raise error
        return whole(*args, **how)

    monkeypatch.setattr(module, name, step)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("at", [2, 5])
def test_a_killed_fit_resumes_to_the_same_bits(tmp_path, monkeypatch, counts, solver, at):
    how = {"n_components": 4, "solver": solver, "max_iter": 6, "tol": 0.0, "random_state": 0}
    whole = GloVe(**how).fit(counts)
    file = tmp_path / "state.safetensors"
    monkeypatch.setattr("eckart.io.models.checkpoint.SECONDS", 0.0)
    with monkeypatch.context() as patch:
        stopping(patch, solver, at, Killed())
        with pytest.raises(Killed):
            GloVe(**how, checkpoint=file).fit(counts)
    assert file.exists()
    resumed = GloVe(**how, checkpoint=file, n_threads=3).fit(counts)
    assert same(whole, resumed)
    assert resumed.certificate_ == whole.certificate_
    assert not file.exists()


def test_a_checkpoint_of_other_work_is_refused(tmp_path, monkeypatch, counts):
    file = tmp_path / "state.safetensors"
    monkeypatch.setattr("eckart.io.models.checkpoint.SECONDS", 0.0)
    with monkeypatch.context() as patch:
        stopping(patch, "als", 3, Killed())
        with pytest.raises(Killed):
            GloVe(4, random_state=0, checkpoint=file).fit(counts)
    with pytest.raises(eckart.FileError, match="checkpoint of other work"):
        GloVe(4, random_state=0, n_max=5.0, checkpoint=file).fit(counts)


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_interrupt_keeps_the_last_whole_step(monkeypatch, counts, solver):
    short = GloVe(4, solver=solver, max_iter=3, tol=0.0, random_state=0).fit(counts)
    stopping(monkeypatch, solver, 4, KeyboardInterrupt())
    model = GloVe(4, solver=solver, max_iter=9, tol=0.0, random_state=0).fit(counts)
    assert same(short, model)
    assert "interrupted" in model.certificate_["stopped"]


def test_an_interrupt_before_the_first_step_leaves_the_old_state(monkeypatch, counts):
    model = GloVe(4, random_state=0).fit(counts)
    before = model.fit_
    stopping(monkeypatch, "als", 1, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        model.fit(counts)
    assert model.fit_ is before


def test_saved_models_certify_again(text, tmp_path):
    model = GloVe(4, random_state=0).fit(text)
    model.save(tmp_path / "m.safetensors")
    kept = eckart.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(kept.components_, model.components_)
    assert kept.certify(text) == model.certificate_
    kept.fit_.factors.vectors[:] += 0.5
    assert not kept.certify(text).holds
    with pytest.raises(InputError, match="other words"):
        model.certify([["a", "b"]] * 9)


def test_odd_counts_are_defined():
    one = GloVe(2, min_count=1, random_state=0).fit(["a a a"])
    assert one.components_.shape == (1, 2)
    assert one.loss_ < 1e-3
    wide = GloVe(5, min_count=1, random_state=0).fit(["a b"])  # more dimensions than words
    assert np.isfinite(wide.components_).all()
    zeros = Counts(
        np.array([0, 2, 4]), np.array([0, 1, 0, 1], np.int32), np.array([0.0, 2.0, 2.0, 1.0]), 2
    )
    # a stored zero is not a pair
    assert GloVe(1, random_state=0).fit(zeros).fit_.plan["pairs"] == 3
    tiny = Counts.from_scipy(sparse.csr_array([[0, 1e-30], [1e-30, 1e30]]))
    for solver in SOLVERS:
        assert np.isfinite(GloVe(2, solver=solver, random_state=0).fit(tiny).components_).all()


def test_wrong_parameters_are_named(counts):
    for how in (
        {"solver": "sgd"},
        {"n_max": 0},
        {"power": -1},
        {"l2": np.inf},
        {"tol": -1},
        {"learning_rate": 0},
        {"max_iter": 0},
        {"n_components": 0},
    ):
        with pytest.raises(InputError, match=next(iter(how))):
            GloVe(**how).fit(counts)


@pytest.mark.slow
def test_als_is_ahead_of_adagrad_on_real_text(shared_data):
    s = sequences(shared_data("text8-prefix") / "text8-prefix.txt.gz", min_count=50)
    n = cooccurrence(s)
    als = GloVe(20, max_iter=4, random_state=0).fit(n)
    ada = GloVe(20, solver="adagrad", max_iter=8, random_state=0).fit(n)
    assert als.loss_ < ada.loss_
