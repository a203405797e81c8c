"""Promises of solvers that a change of a sign, a limit or a term would break without any error."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from eckart import NMF, ExactRecovery
from eckart.explain.em import climb
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
        return SimpleNamespace(bound=float(self.bounds[min(theta, len(self.bounds) - 1)]), weight=1.0, theta=theta)

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
    # residuals are measured again at the returned point, one half sweep after those that stopped the loop
    assert np.hypot(c["residual of W"], c["residual of H"]) <= 2 * tol
    assert len(NMF(3, tol=tol / 10, max_iter=5000, random_state=0).fit(x).fit_.trace) > len(model.fit_.trace)


def test_attempts_are_counted_and_limited(rng):
    a = rng.standard_normal((20, 2)) @ rng.standard_normal((2, 15))
    a[rng.random(a.shape) < 0.75] = np.nan  # too few entries: no attempt succeeds
    a[0] = a[:, 0] = 1.0
    used = [ExactRecovery(2, attempts=n, max_iter=10**4, random_state=0).fit(a).fit_.plan["attempts"] for n in (1, 2)]
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
    from eckart.nn import losses

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
    kl = torch.distributions.kl_divergence(normal(mean, (0.5 * log_var).exp()), normal(0.0, 1.0)).sum() / 5
    assert float(with_term - without) == pytest.approx(0.7 * float(kl) / 4)
