"""Promises about what goes wrong at the rim: interrupts, unknown ids, long streams, odd CSV
files."""

from __future__ import annotations

import numpy as np
import pytest

import eckart
from eckart import LDA, PLSA, BayesianMF, ExactRecovery, GaussianMixture
from eckart.complete.nuclear import exact
from eckart.io.tables.write import escape_formulas, write_long, write_table


def holes(seed=0, share=0.4):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 25))
    a[rng.random(a.shape) < share] = np.nan
    return a


@pytest.mark.parametrize(("name", "at"), [("_reweighted", 3), ("_reweighted", 8), ("retract", 0)])
def test_an_interrupt_of_exact_recovery_keeps_the_best_state(name, at, monkeypatch):
    """In the reweighting and in the Gauss-Newton steps after it."""
    owner = exact._Search if name == "_reweighted" else exact.Tangent
    do, calls = getattr(owner, name), []

    def stop(self, *args):
        calls.append(1)
        if len(calls) > at:
            raise KeyboardInterrupt
        return do(self, *args)

    monkeypatch.setattr(owner, name, stop)
    a = holes() + 0.1 * np.random.default_rng(1).standard_normal((40, 25))
    model = ExactRecovery(2, random_state=0).fit(a)
    assert model.fit_.trace.reason.name == "INTERRUPTED"
    assert model.rank_ == 2
    if name == "_reweighted":
        assert len(model.fit_.trace) == at
    seen = ~np.isnan(a)
    rest = np.concatenate([block for _, block in model.complete(keep=False)])[seen] - a[seen]
    assert np.linalg.norm(rest) < 0.9 * np.linalg.norm(a[seen])
    whole = ExactRecovery(2, random_state=0)
    with monkeypatch.context() as m:
        m.setattr(owner, name, do)
        assert len(whole.fit(a).fit_.trace) > len(model.fit_.trace)


def test_an_interrupt_before_anything_is_known_goes_on_to_the_caller(monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(exact, "partial_svd", stop)
    with pytest.raises(KeyboardInterrupt):
        ExactRecovery(2, random_state=0).fit(holes())


@pytest.mark.parametrize("options", [{}, {"implicit_features": "rows"}, {"noise": "column"}])
def test_shares_of_an_explanation_add_up_to_what_is_predicted(options):
    model = BayesianMF(
        2, n_samples=10, burn_in=20, thin=1, clip=False, random_state=0, **options
    ).fit(holes())
    row = holes()[:1]
    told = model.explain(0, 3, n=50)
    assert told.prediction == pytest.approx(float(model.predict([0], [3])[0]), rel=1e-6)
    assert told.base + sum(share for *_, share in told.shares) == pytest.approx(told.prediction)
    assert len(told.shares) == np.count_nonzero(~np.isnan(row))


def test_deviations_beside_unknown_ids():
    model = BayesianMF(2, n_samples=8, burn_in=8, thin=1, random_state=0).fit(holes())
    mean, spread = model.predict([0, 99, 1], [1, 2, 99], unknown="mean", return_std=True)
    assert np.isfinite(mean).all()
    assert np.isnan(spread).tolist() == [False, True, True]
    assert spread[0] == model.deviation([0], [1])[0]
    with pytest.raises(eckart.InputError, match="99"):
        model.predict([99], [1], return_std=True)
    with pytest.raises(
        eckart.InputError,
        match=r"return_std=True needs row and column ids: predict\(rows, columns, return_std=True\)",
    ):
        model.predict(holes(), return_std=True)


def test_a_model_file_does_not_grow_with_the_batches(tmp_path, monkeypatch):
    from eckart.explain.mixtures import stepwise

    monkeypatch.setattr(stepwise, "KEPT", 20)
    rng, model, sizes = np.random.default_rng(0), GaussianMixture(2, random_state=0), []
    model.partial_fit(rng.standard_normal((1200, 2)))
    for i in range(60):
        model.partial_fit(rng.standard_normal((20, 2)))
        if i in (29, 59):
            model.save(tmp_path / "m.safetensors")
            sizes.append((tmp_path / "m.safetensors").stat().st_size)
    assert abs(sizes[1] - sizes[0]) < 100
    assert len(model.fit_.trace) == 21


def test_the_number_of_steps_is_that_asked_for():
    x = np.random.default_rng(0).poisson(1.0, (30, 8)).astype(float)
    for method in ("cvb0", "variational"):
        assert (
            LDA(2, learning_method=method, max_iter=7, tol=0.0, random_state=0).fit(x).n_iter_ == 7
        )
    assert (
        LDA(2, learning_method="gibbs", max_iter=7, burn_in=3, n_samples=2, random_state=0)
        .fit(x)
        .n_iter_
        == 12
    )
    assert LDA(2, learning_method="online", max_iter=3, random_state=0).fit(x).n_iter_ == 3
    assert PLSA(2, max_iter=7, tol=0.0, random_state=0).fit(x).n_iter_ == 7
    model = GaussianMixture(2, max_iter=7, tol=0.0, random_state=0).fit(x)
    assert len(model.lower_bounds_) == model.n_iter_ == 7


def test_text_among_numbers_is_named_with_its_line(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n\n3,four\n5,6\n")
    with pytest.raises(
        eckart.InputError,
        match="column 'b' of",
    ):
        eckart.read(str(tmp_path / "x.csv"))


def test_a_blank_line_in_one_column_is_refused(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a\n1\n\n3\n")
    with pytest.raises(
        eckart.FileError, match="blank line between the rows of its one column, line 3; write NaN"
    ):
        eckart.read(str(path))
    path.write_text("\na\n1\n3\n\n\n")
    assert eckart.read(str(path)).array.ravel().tolist() == [1.0, 3.0]
    path.write_text("a\n1\nNaN\n3\n")
    assert eckart.read(str(path)).shape[0] == 3


def test_commas_at_the_ends_of_lines_are_no_column(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b,\n1,2,\n3,4,\n")
    found = eckart.read(str(path))
    assert found.array.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert found.columns.tolist() == ["a", "b"]
    path.write_text("a,b,\n1,2,5\n3,4,6\n")  # a column without a name
    assert eckart.read(str(path)).shape == (2, 3)


def test_formulas_in_csv_are_escaped_when_asked(tmp_path):
    path = tmp_path / "x.csv"
    blocks = lambda: iter([(np.array([[1.5], [-2.0]]), np.array(["=cmd()", "b"], object))])  # noqa: E731
    write_table(path, ["@sum"], blocks())
    assert path.read_text().splitlines()[1].startswith('"=cmd()"')
    token = escape_formulas.set(True)
    try:
        write_table(path, ["@sum"], blocks())
        head, first, second = path.read_text().splitlines()
        assert "'@sum" in head
        assert first.startswith('"\'=cmd()"')
        assert second == '"b",-2'  # numbers are numbers
        write_long(
            path, ["id", "value"], iter([(np.array(["+1", "x"], object), np.array([1.0, 2.0]))])
        )
        assert "'+1" in path.read_text()
        write_table(
            tmp_path / "x.parquet", ["v"], iter([(np.ones((1, 1)), np.array(["=a"], object))])
        )
        assert eckart.read(str(tmp_path / "x.parquet"), index="row").rows.tolist() == ["=a"]
    finally:
        escape_formulas.reset(token)
