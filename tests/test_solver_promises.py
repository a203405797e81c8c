"""Promises of solvers that a change of a sign, a limit or a term would break without any error."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from eckart import NMF, ExactRecovery
from eckart.embed.skipgram_train import FixedPairs, Training, train
from eckart.engines import engine_named
from eckart.engines.protocol.words import Pieces
from eckart.errors import FileError
from eckart.explain.em import climb
from eckart.explain.parts.consensus import select_rank
from eckart.explain.topics import lda_gibbs
from eckart.explain.topics.documents import as_counts
from eckart.io.models import checkpoint
from eckart.io.read import read
from eckart.reduce.rotate import varimax
from eckart.report.held_out import HeldOut
from eckart.trace import StopReason, Trace


def test_varimax_weighs_rows_alike(rng):
    """Kaiser's normalisation: the rotation does not see how long the rows of the loadings are."""
    loadings = rng.standard_normal((12, 3))
    longer = loadings * rng.uniform(0.1, 10.0, (12, 1))
    np.testing.assert_allclose(np.abs(varimax(longer)), np.abs(varimax(loadings)), atol=1e-6)


class Hill:
    """A bound that rises by the numbers given, one for each step."""

    def __init__(self, *rises):
        self.bounds = np.cumsum([0.0, *rises])

    def expect(self, theta):
        return SimpleNamespace(
            bound=float(self.bounds[min(theta, len(self.bounds) - 1)]), weight=1.0, theta=theta
        )

    def maximise(self, statistics):
        return statistics.theta + 1


@pytest.mark.parametrize(
    ("rises", "steps", "reason"),
    [
        ((1.0, 0.5, 0.9e-3, 0.5e-3, 1.0), 3, StopReason.CONVERGED),
        ((1.0, 0.5, 0.9e-3, 1.0), 5, StopReason.MAX_ITER),  # one small rise may be a saddle
        ((1.0, 0.5, 1.1e-3, 1.0), 5, StopReason.MAX_ITER),
        ((1.0, 0.5, -1.1e-3, 1.0), 5, StopReason.MAX_ITER),  # a fall is no sign of rest
    ],
)
def test_em_stops_where_a_step_changes_less_than_the_tolerance(rises, steps, reason):
    trace = Trace("bound")
    found = climb(Hill(*rises, 1.0), 0, tol=1e-3, max_iter=5, trace=trace)
    assert found.trace.reason is reason
    assert len(found.trace) - 1 == steps


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
def test_a_converged_nmf_is_within_its_tolerance(tol):
    x = np.abs(np.random.default_rng(0).standard_normal((40, 12)))
    model = NMF(3, tol=tol, max_iter=5000, random_state=0).fit(x)
    assert model.fit_.trace.reason is StopReason.CONVERGED
    c = model.certificate_
    # residuals are measured again at the returned point, one half sweep after those that stopped
    # the loop
    assert np.hypot(c["residual of W"], c["residual of H"]) <= 2 * tol
    assert len(NMF(3, tol=tol / 10, max_iter=5000, random_state=0).fit(x).fit_.trace) > len(
        model.fit_.trace
    )


def test_attempts_are_counted_and_limited(rng):
    a = rng.standard_normal((20, 2)) @ rng.standard_normal((2, 15))
    a[rng.random(a.shape) < 0.75] = np.nan  # too few entries: no attempt succeeds
    a[0] = a[:, 0] = 1.0
    used = [
        ExactRecovery(2, attempts=n, max_iter=10**4, random_state=0).fit(a).fit_.plan["attempts"]
        for n in (1, 2)
    ]
    assert used == [1, 2]


def test_a_model_that_only_ties_is_not_useful():
    def made(ours, other, predicted):
        scores = {
            "model": {"RMSE": ours},
            "mean": {"RMSE": other},
            "bias": {"RMSE": 1.0 if predicted is not None else 0.0},
        }
        return HeldOut(None, None, scores, predicted).useful

    errors = np.zeros(1)  # errors: less is better
    assert made(0.4, 0.5, errors)
    assert not made(0.5, 0.5, errors)
    assert not made(0.6, 0.5, errors)
    assert made(0.6, 0.5, None)  # ranks: more is better
    assert not made(0.5, 0.5, None)
    assert not made(0.4, 0.5, None)


def test_the_variational_term_is_the_divergence_from_a_standard_normal():
    torch = pytest.importorskip("torch")
    from eckart.nn import rules as losses

    generator = torch.Generator().manual_seed(0)
    mean, log_var = (torch.randn(5, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    x = torch.zeros(5, 4, dtype=torch.float64)

    class Net(torch.nn.Module):
        def __init__(self, log_var):
            super().__init__()
            self.log_var = log_var

        def forward(self, given):
            return torch.zeros_like(given), mean, self.log_var

    made = losses.coding_loss("squared", 4.0, variational=0.7)
    batch = SimpleNamespace(x=x, seen=None)
    with_term, without = (made(Net(v), batch) for v in (log_var, None))
    normal = torch.distributions.Normal
    kl = (
        torch.distributions.kl_divergence(
            normal(mean, (0.5 * log_var).exp()), normal(0.0, 1.0)
        ).sum()
        / 5
    )
    assert float(with_term - without) == pytest.approx(0.7 * float(kl) / 4)


class Recorder:
    """An object whose calls are written down: (name, keyword arguments)."""

    def __init__(self, inner, calls):
        self._inner, self._calls = inner, calls

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*args, **more):
            self._calls.append((name, more))
            out = found(*args, **more)
            return Recorder(out, self._calls) if name == "topic_chain" else out

        return call


def test_a_chain_averages_after_its_burn_in_alone(rng):
    calls: list = []
    engine = engine_named("auto", None)
    with engine.at_work():
        docs = engine.put(as_counts(read(rng.integers(0, 3, (20, 8)).astype(float)), "LDA"))
        priors = lda_gibbs.Priors(np.full(2, 0.5), 0.1)
        found = lda_gibbs.solve(
            docs,
            priors,
            max_iter=2,
            burn_in=3,
            n_samples=4,
            n_init=1,
            engine=Recorder(engine, calls),
            rng=rng,
        )
    sweeps = [more["average"] for name, more in calls if name == "sweep"]
    assert sweeps == [False] * 3 + [True] * 4
    assert len(found.trace) == 7


def test_noise_words_are_others_in_every_epoch_while_the_rate_falls(rng):
    calls: list = []
    pieces = Pieces.of(
        np.arange(40, dtype=np.int32) % 5, np.array([0, 20, 40]), np.ones(5), np.ones(5)
    )
    how = Training(2, 2, 5, 5, epochs=4, rate=0.1, last_rate=0.02, bias=False, together=False)
    engine = engine_named("auto", None)
    with engine.at_work():
        pairs = FixedPairs(np.zeros(1, int), np.ones(1, int), np.full((1, 1), 2), 5.0)
        train(pieces, how, engine=Recorder(engine, calls), rng=rng, judges=(pairs, None))
    steps = [more for name, more in calls if name == "pair_step"]
    assert len({more["seed"] for more in steps}) == 4
    rates = [rate for more in steps for rate in more["rates"]]
    assert rates == pytest.approx([0.1, 0.08, 0.08, 0.06, 0.06, 0.04, 0.04, 0.02])


def test_no_column_is_hidden_whole(rng, monkeypatch):
    x = rng.gamma(1.0, 1.0, (12, 5))
    x[1:, 4] = np.nan  # one entry: if it were hidden nothing would be known of its column
    fitted: list = []
    original = NMF.fit
    monkeypatch.setattr(
        NMF, "fit", lambda self, X, **more: (fitted.append(X), original(self, X, **more))[1]
    )
    select_rank(x, [1], held_out=0.9, n_init=2, random_state=0)
    assert fitted[0].column_counts().min() >= 1


def test_a_checkpoint_of_another_layout_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "fit.ckpt"
    checkpoint.Checkpoint(path, {"model": "PCA"}, seconds=0.0).save({"x": np.arange(4.0)})
    np.testing.assert_array_equal(
        checkpoint.Checkpoint(path, {"model": "PCA"}).load()["x"], np.arange(4.0)
    )
    with pytest.raises(
        FileError,
        match=r"fit\.ckpt is a checkpoint of other work \(model must be 'ALS', got 'PCA'\); delete it to",
    ):
        checkpoint.Checkpoint(path, {"model": "ALS"}).load()
    monkeypatch.setattr(checkpoint, "LAYOUT", checkpoint.LAYOUT + 1)
    with pytest.raises(FileError, match="layout"):
        checkpoint.Checkpoint(path, {"model": "PCA"}).load()
