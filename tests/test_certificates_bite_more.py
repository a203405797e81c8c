"""The certificates of losses, attributes, item weights, gaps, sketches, streams and hands, in the
shape of ``test_certificates_bite``; and that no check of the source is without such a test."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from eckart import (
    ALS,
    EASE,
    PCA,
    SLIM,
    GaussianMixture,
    LatentDirichletAllocation,
    LinearAutoencoder,
    SoftImpute,
)
from eckart.certify.stationary import GLOBAL_GAP, by_gap
from eckart.complete.items.blend import _certificate as blended
from eckart.engines.protocol import Sketch
from eckart.reduce import missing, solve
from eckart.reduce.stream import SKETCH_LIMIT, spectrum_of_sketch
from eckart.trace import StopReason
from test_als_losses import table
from test_certificates_bite import ENGINE, bites, traced

TESTS = Path(__file__).parent


def just_beyond(made, name):
    """The certificate of an answer that is spoiled twice as much at each step, at the first at
    which this check fails."""
    for step in range(60):
        certificate = made(1e-12 * 2.0**step)
        check = next(c for c in certificate.checks if c.name == name)
        if not check.passed:
            assert check.value <= 10 * check.limit, (check, "a smaller fault must be seen")
            return certificate
    raise AssertionError(f"no fault fails by {name}")


def with_factors(model, **parts):
    """The model with other factors; what it was fitted to stays."""
    model.fit_ = replace(model.fit_, factors=replace(model.fit_.factors, **parts))
    return model


def test_every_check_of_the_source_has_an_answer_that_is_spoiled_beyond_it():
    """By the name under which it would fail: as the key of a case, or in the reason that a test
    waits for."""
    told = "".join(path.read_text() for path in TESTS.glob("test_*.py"))
    sources = [
        text
        for path in (TESTS.parent / "src" / "eckart").rglob("*.py")
        if "Check(" in (text := path.read_text())
    ]
    calls = [
        node
        for text in sources
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Check"
    ]
    names = {call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)}
    assert len(names) > 40
    assert not [
        name for name in sorted(names) if f'"{name}": ' not in told and f'"{name} is' not in told
    ]


def clicks(rng, rows=60, n=12):
    likes = rng.random((rows, 3)) @ rng.random((3, n))
    x = np.where(rng.random((rows, n)) < likes / likes.max(), 1.0, np.nan)
    x[np.arange(rows), np.arange(rows) % n] = 1.0
    return x


def test_weights_between_columns(rng):
    x = clicks(rng)
    model = EASE(l2=2.0).fit(x)
    best = model.fit_.factors.weights

    def made(i, j, by):
        w = best.copy()
        w[i, j] += by
        return with_factors(model, weights=w).certify(x)

    names = bites(
        made(0, 0, 0.0),
        {
            "relative gap": just_beyond(lambda t: made(0, 1, t), "relative gap"),
            "diagonal": made(3, 3, 1e-12),
        },
    )
    assert names == {"relative gap", "diagonal"}


def test_sparse_weights_between_columns(rng):
    x = clicks(rng)
    model = SLIM(l2=1.0, l1=0.1, tol=1e-8).fit(x)
    best = model.fit_.factors.data

    def made(by, at=slice(None)):
        data = best.copy()
        data[at] += by
        return with_factors(model, data=data).certify(x)

    wider = just_beyond(made, "gap of the worst column")
    names = bites(
        made(0.0), {"gap of the worst column": wider, "constraints": made(-1.01 * best[0], 0)}
    )
    assert names == {"gap of the worst column", "constraints"}


@pytest.mark.parametrize("loss", ["ordered", "poisson"])
def test_losses(loss):
    x, _ = table(loss)
    model = ALS(2, loss=loss, random_state=0, tol=1e-9, max_iter=300).fit(x)
    f = model.fit_.factors

    def made(left=f.left, last=0.0):
        model.fit_.trace.values[:] = [1e3, 1e3 + last]
        return with_factors(model, left=left).certify(x)

    direction = np.random.default_rng(0).standard_normal(f.left.shape)
    broken = f.left.copy()
    broken[0] = np.nan
    rounding = 50 * np.finfo(float).eps * 1e3
    slope = "relative gradient"
    with np.errstate(all="ignore"):
        names = bites(
            made(last=0.8 * rounding),
            {
                slope: just_beyond(lambda t: made(f.left + t * direction), slope),
                "finite": made(broken),
                "never rises": made(last=1.2 * rounding),
            },
        )
    assert {slope, "finite", "never rises"} <= names
    kept = dict(model.fit_.plan["loss"])

    def moved(by):
        model.fit_.plan["loss"] = kept | {
            "thresholds": [t + by * i for i, t in enumerate(kept["thresholds"], 1)]
        }
        return made()

    if loss == "ordered":
        assert "thresholds" in bites(moved(0.0), {"thresholds": just_beyond(moved, "thresholds")})


@pytest.mark.parametrize("loss", [None, "ordered"])
def test_attributes(rng, loss):
    f, g = rng.standard_normal((30, 2)), rng.standard_normal((20, 2))
    s = (f @ rng.standard_normal((2, 2)) + 0.3 * rng.standard_normal((30, 2))) @ g.T
    a = (
        s + 0.3 * rng.standard_normal(s.shape)
        if loss is None
        else 1.0 + np.digitize(s + rng.logistic(size=s.shape), [-1, 1])
    )
    x = np.where(rng.random(s.shape) < 0.6, a, np.nan)
    more = {} if loss is None else {"loss": loss}
    model = ALS(2, random_state=0, tol=1e-10, max_iter=2000, **more).fit(
        x, row_features=pd.DataFrame(f), column_features=pd.DataFrame(g)
    )
    best = model.fit_.factors.left
    direction, slope = rng.standard_normal(best.shape), "relative gradient"

    def made(by):
        return with_factors(model, left=best + by * direction).certify(x)

    assert {slope, "finite"} <= bites(
        made(0.0), {slope: just_beyond(made, slope), "finite": made(np.nan)}
    )


def test_gap_of_losses():
    x, _ = table("logistic")
    model = SoftImpute(loss="logistic", tau=2.0, tol=1e-3, random_state=0).fit(x)
    best = model.fit_.factors.left
    name = "duality gap"
    assert bites(
        model.certify(x),
        {name: just_beyond(lambda t: with_factors(model, left=best * (1 + t)).certify(x), name)},
    ) == {name}


def test_a_ridge_factorization_is_global_up_to_its_gap_and_not_beyond():
    for share, kind in ((0.9, "global"), (1.1, "stationary")):
        checks, notes = [], []
        assert by_gap("stationary", share * GLOBAL_GAP, "", "", checks, notes) == kind
        assert [check.name for check in checks] == ["duality gap"] * (kind == "global")
        assert len(notes) == 1


def test_gaps(rng):
    x = (
        rng.standard_normal((300, 2)) @ rng.standard_normal((2, 6))
        + 0.3 * rng.standard_normal((300, 6))
        + 1.0
    )
    x[rng.random(x.shape) < 0.2] = np.nan
    model = PCA(2, random_state=0, tol=1e-8).fit(x)
    basis = model.fit_.factors

    def made(by=0.0, last=-40.0):
        from eckart import Observed

        with ENGINE.at_work():
            moved = replace(basis, mean=basis.mean + by)
            return missing.certificate_of(
                ENGINE.put(Observed.from_nan(x)),
                moved,
                engine=ENGINE,
                trace=traced(-50.0, -40.0, last),
            )

    names = bites(
        made(last=-40.0 - 0.9 * 40e-9),
        {
            "EM step": just_beyond(made, "EM step"),
            "likelihood never falls": made(last=-40.0 - 1.1 * 40e-9),
        },
    )
    assert names == {"EM step", "likelihood never falls"}


def test_a_sketch_and_a_statistic(rng):
    x = rng.standard_normal((200, 4)) @ rng.standard_normal((4, 30)) + 0.01 * rng.standard_normal(
        (200, 30)
    )
    sketch = Sketch(30, 20, np.dtype(float), True).add(x, np.ones(200))
    values = np.linalg.svd(sketch.b, compute_uv=False) ** 2

    def made(share):
        c, found = spectrum_of_sketch(
            replace(sketch, lost=share * SKETCH_LIMIT * values[:3].sum() / 3), 3, ENGINE
        )
        return solve.certify(
            c, solve.to_basis(c, found, None), 1e-6, np.random.default_rng(0), found.notes
        )

    with ENGINE.at_work():
        assert "sketch error" in bites(made(0.9), {"sketch error": made(1.1)})


def test_a_statistic_is_compared_with_the_data(rng, monkeypatch):
    from eckart.engines.protocol import Moments

    x = rng.standard_normal((80, 6))
    limit = 30 * np.finfo(float).eps * np.sqrt(6)

    def made(share):
        monkeypatch.setattr(Moments, "probe_error", lambda self, *_: share * limit)
        return PCA(2, svd_solver="eigh").fit(x).certificate_

    assert "statistic agrees with data" in bites(
        made(0.9), {"statistic agrees with data": made(1.1)}
    )


@pytest.mark.parametrize(("batch", "limit"), [(None, 1e-4), (40, 5e-2)])
def test_the_gradient_of_an_autoencoder(rng, batch, limit):
    from eckart.reduce import linear_autoencoder as module

    x = rng.standard_normal((80, 2)) @ rng.standard_normal((2, 5)) + 0.1 * rng.standard_normal(
        (80, 5)
    )
    found = {}
    original = module._certify

    def certify(c, basis, trained, *rest):
        exact = PCA(2).fit(x).fit_.factors
        for share in (0.9, 1.1):
            found[share] = original(c, exact, replace(trained, gradient=share * limit), *rest)
        return found[0.9]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_certify", certify)
        LinearAutoencoder(2, batch_size=batch, random_state=0, max_iter=5).fit(x)
    assert "gradient" in bites(found[0.9], {"gradient": found[1.1]})


def test_batches_of_a_mixture(rng):
    model = GaussianMixture(2, random_state=0)
    for _ in range(6):
        model.partial_fit(rng.standard_normal((200, 2)) + np.repeat([[0.0], [6.0]], 100, axis=0))
    true = model.certificate_
    model.partial_fit(rng.standard_normal((200, 2)) * 3 + np.repeat([[3.0], [-9.0]], 100, axis=0))
    assert bites(true, {"fit of the last batch": model.certificate_}) == {"fit of the last batch"}


def test_an_interrupted_fit_of_topics(rng):
    x = rng.poisson(2.0, (40, 8)).astype(float)
    model = LatentDirichletAllocation(2, random_state=0, max_iter=300, tol=1e-3).fit(x)
    true = model.certify(x)
    model.fit_.trace.reason = StopReason.INTERRUPTED
    bites(true, {"interrupted": model.certify(x)})


def test_parameters_that_were_set_by_hand(rng):
    x = rng.standard_normal((200, 2)) + np.repeat([[0.0], [8.0]], 100, axis=0)
    stored = GaussianMixture(2, random_state=0).fit(x)
    model = GaussianMixture(2)
    model.weights_, model.means_, model.covariances_ = (
        stored.weights_,
        stored.means_,
        stored.covariances_,
    )
    bites(model.certify(x), {"measured": model.certificate_})
    pca, by_hand = PCA(2).fit(x), PCA(2)
    by_hand.components_, by_hand.mean_, by_hand.explained_variance_ = (
        pca.components_,
        pca.mean_,
        pca.explained_variance_,
    )
    by_hand.n_samples_ = len(x)
    bites(by_hand.certify(x), {"measured": by_hand.certificate_})


def test_a_blend_behind_its_best_member(rng):
    own = EASE(l2=2.0).fit(clicks(rng)).certificate_

    def made(gain, error=0.01, members=2):
        told = {"gain over the best member": gain, "standard error of the gain": error}
        return blended({f"m{i}": own for i in range(members)}, told)

    for error in (0.01, 0.0):
        bites(made(1e-9, error), {"behind the best member": made(-1e-9, error)})
    assert made(-1.0, members=1).holds
    broken = replace(own, checks=(replace(own.checks[0], value=1.0), *own.checks[1:]))
    assert (
        "m1: relative gap is "
        in blended(
            {"m0": own, "m1": broken},
            {"gain over the best member": 1.0, "standard error of the gain": 0.1},
        ).reason
    )
