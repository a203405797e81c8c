"""Every public function and estimator on the same entries in memory, in a file in parts and in a
Dask collection: the same answer, or a refusal."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import eckart
from eckart import Observed
from eckart.errors import EckartError, InputError
from eckart.matrix_blocks import ObservedParts

pd = pytest.importorskip("pandas")
HOW = {"rows": "u", "columns": "i", "values": "r"}
KINDS = ("array", "file in parts", "dask")
KEEP = {"max_iter": 3}


@pytest.fixture(scope="module")
def table():
    """Ratings of people and films, some 8 % of the cells, sorted as all sources read them."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"u": rng.integers(0, 60, 900), "i": rng.integers(0, 40, 900)}
    ).drop_duplicates()
    return frame.assign(r=rng.integers(1, 6, len(frame)).astype(float)).sort_values(
        ["u", "i"], ignore_index=True
    )


@pytest.fixture(scope="module")
def sources(table, tmp_path_factory):
    """The table as eckart's matrix, in memory and in several parts; and in a file of triples."""
    from eckart.io.tables import entry_shards

    file = tmp_path_factory.mktemp("tables") / "r.csv"
    table.to_csv(file, index=False)
    least, entry_shards.LEAST_SHARD = entry_shards.LEAST_SHARD, 2**10
    try:
        found = {
            "array": eckart.read(file, **HOW, memory="1GB"),
            "file in parts": eckart.read(file, **HOW, memory="20kB"),
        }
    finally:
        entry_shards.LEAST_SHARD = least
    dask = pytest.importorskip("dask.dataframe")
    found["dask"] = eckart.read(dask.from_pandas(table, npartitions=3), **HOW)
    assert isinstance(found["file in parts"], ObservedParts)
    assert len(found["file in parts"].parts.lengths) > 1
    return found


CALLS = {
    **{
        f"normalise {by}": (lambda x, by=by: eckart.normalise(x, by)[1])
        for by in ("column", "row", "both", "global", "bias")
    },
    "split": lambda x: eckart.split(x, 0.1, random_state=0),
    "split by row": lambda x: eckart.split(x, 0.1, by="row"),
    "folds": lambda x: list(eckart.folds(x, 3, random_state=0)),
    "recovery": lambda x: eckart.recovery(x, 2),
    "randomized_svd": lambda x: eckart.randomized_svd(x, 2),
    "power_method": eckart.power_method,
    "tune": lambda x: eckart.tune(x, n_components=[1], l2=[1.0], folds=2, random_state=0),
    "compare": lambda x: eckart.compare(x, random_state=0),
    "read": lambda x: eckart.read(x),
    "select_components": lambda x: eckart.select_components(x, 3, shuffles=2, random_state=0),
    "select_mixture": lambda x: eckart.select_mixture(x, (1, 2), ("diag",), random_state=0),
    "select_rank": lambda x: eckart.select_rank(x, (1, 2), n_init=2, random_state=0, max_iter=3),
    "select_topics": lambda x: eckart.select_topics(eckart.LDA(**KEEP), x, (1, 2)),
    "split_tokens": lambda x: eckart.split_tokens(x, random_state=0),
    "coherence": lambda x: eckart.coherence([[0, 1, 2]], x, 3),
    "document_completion": lambda x: eckart.document_completion(
        np.full((2, 40), 1 / 40), x, x, steps=2
    ),
    "recovery_certificate": lambda x: eckart.recovery_certificate(
        eckart.SoftImpute(1.0, **KEEP), x
    ),
    "cooccurrence": lambda x: eckart.cooccurrence(x),
    "metrics.ranking": lambda x: eckart.metrics.ranking(np.zeros((60, 2), int), x, 2),
}
MODELS = {
    "ALS": eckart.ALS(2, l2=0.5, random_state=0, **KEEP),
    "ALS implicit": eckart.ALS(2, feedback="implicit", random_state=0, **KEEP),
    "ALS huber": eckart.ALS(2, l2=0.5, loss="huber", **KEEP),
    "SoftImpute": eckart.SoftImpute(tau=1.0, **KEEP),
    "SVT": eckart.SVT(**KEEP),
    "SVP": eckart.SVP(2, **KEEP),
    "ExactRecovery": eckart.ExactRecovery(**KEEP),
    "BayesianMF": eckart.BayesianMF(2, n_samples=8, burn_in=2),
    "EASE": eckart.EASE(),
    "SLIM": eckart.SLIM(),
    "SpectralFilter": eckart.SpectralFilter(4),
    "Blend": eckart.Blend(),
    "TimeFactors": eckart.TimeFactors(1, n_samples=8, burn_in=2),
    "MixedTable": eckart.MixedTable(1),
    "PCA": eckart.PCA(2),
    "TruncatedSVD": eckart.TruncatedSVD(2),
    "RobustPCA": eckart.RobustPCA(2, **KEEP),
    "IncrementalPCA": eckart.IncrementalPCA(2),
    "LinearAutoencoder": eckart.LinearAutoencoder(2, **KEEP),
    "GaussianMixture": eckart.GaussianMixture(1, covariance_type="diag", **KEEP),
    "Mixture": eckart.Mixture(2, **KEEP),
    "NMF": eckart.NMF(2, random_state=0, **KEEP),
    "MiniBatchNMF": eckart.MiniBatchNMF(2, **KEEP),
    "PLSA": eckart.PLSA(2, **KEEP),
    "LDA": eckart.LDA(2, **KEEP),
    "PMI": eckart.PMI(2),
    "GloVe": eckart.GloVe(2),
    "SkipGram": eckart.SkipGram(2),
}
VERBS = {
    "certify": lambda m, x: m.certify(x),
    "predict": lambda m, x: m.predict([1, 2], [1, 2]),
    "recommend": lambda m, x: m.recommend([1, 2], 3),
    "similar": lambda m, x: m.similar(columns=[1], n=3),
    "explain": lambda m, x: m.explain(1, 2),
    "transform": lambda m, x: m.transform(x),
    "update": lambda m, x: m.update(x),
    "complete": lambda m, x: next(iter(m.complete([1, 2]))),
}


def _answered(do, *given):
    """What a call gives; None where it refuses in words. Anything else is a fault."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return do(*given)
        except EckartError:
            return None


@pytest.mark.parametrize("kind", [*KINDS, "sparse"])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("absent", ["unknown", "zero"])
def test_functions_answer_or_refuse_in_words(sources, name, kind, absent):
    from eckart.matrix_blocks import as_counts

    x = sources["array" if kind == "sparse" else kind]
    x = as_counts(x) if absent == "zero" else x
    _answered(CALLS[name], x.to_scipy() if kind == "sparse" else x)


LONG = ("ExactRecovery", "LinearAutoencoder")  # hundreds of passes over the parts: half a minute


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in MODELS],
)
@pytest.mark.parametrize("absent", ["unknown", "zero"])
def test_models_fit_or_refuse_in_words(sources, name, kind, absent):
    from eckart.matrix_blocks import as_counts

    x = sources[kind] if absent == "unknown" else as_counts(sources[kind])
    _answered(lambda: type(MODELS[name])(**MODELS[name].get_params(deep=False)).fit(x))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["ALS", "ALS implicit", "SoftImpute", "EASE"])
def test_verbs_of_completions_answer_or_refuse_in_words(sources, name, kind):
    model = type(MODELS[name])(**MODELS[name].get_params(deep=False)).fit(sources[kind])
    for do in VERBS.values():
        _answered(do, model, sources[kind])


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("by", ["column", "row", "both", "global", "bias"])
def test_normalised_parts_are_those_of_the_whole(sources, by, kind):
    (fitted, parts), (wanted, whole) = (eckart.normalise(sources[k], by) for k in (kind, "array"))
    assert fitted.mean == pytest.approx(wanted.mean, rel=1e-12)
    np.testing.assert_array_equal(parts.indices, whole.indices)
    np.testing.assert_allclose(parts.data, whole.data, atol=1e-5 if by == "bias" else 1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_folds_of_parts_are_a_partition(sources, kind):
    x = sources[kind]
    tests = [fold.test for fold in eckart.folds(x, 3, random_state=0)]
    assert sum(test.nnz for test in tests) == x.nnz
    total = sum(test.to_scipy() for test in tests)
    assert (total != x.to_scipy()).nnz == 0
    for fold in eckart.folds(x, 3, random_state=0):
        assert fold.train.nnz + fold.test.nnz == x.nnz
        assert (fold.train.row_counts()[x.row_counts() > 1] > 0).all()


def test_rows_of_parts_come_as_they_are(sources):
    from eckart.matrix import row_parts

    whole, parts = (list(row_parts(sources[k], 7)) for k in ("array", "file in parts"))
    for field in ("indices", "data", "rows"):
        np.testing.assert_array_equal(
            *(np.concatenate([getattr(p, field) for p in each]) for each in (whole, parts))
        )
    assert all(isinstance(p, Observed) and not isinstance(p, ObservedParts) for p in parts)


def test_a_matrix_with_unknown_entries_has_no_products(sources):
    with pytest.raises(InputError, match="a must be a whole matrix, got entries that nobody knows"):
        eckart.randomized_svd(sources["array"], 2)


@pytest.mark.parametrize(
    "method", [["--method", "als", "-k", "2"], pytest.param([], marks=pytest.mark.slow)]
)
def test_the_shell_completes_what_is_larger_than_the_memory(table, tmp_path, monkeypatch, method):
    """The default path of ``eckart complete FILE``, with a tenth held out, on shards of the
    disk."""
    from typer.testing import CliRunner

    from eckart.cli.main import app
    from eckart.io.tables import entry_shards, long_tables

    table.to_csv(tmp_path / "r.csv", index=False)
    monkeypatch.setattr(entry_shards, "LEAST_SHARD", 2**10)
    monkeypatch.setattr(long_tables, "memory_of", lambda *_: 20_000)
    words = [
        "complete",
        str(tmp_path / "r.csv"),
        "--rows",
        "u",
        "--columns",
        "i",
        "--values",
        "r",
        "--model",
        str(tmp_path / "m.safetensors"),
        *method,
    ]
    run = CliRunner().invoke(app, words, catch_exceptions=False)
    assert run.exit_code in (0, 1), run.output
    assert "held out" in run.output.lower() or "held-out" in run.output.lower(), run.output
    assert eckart.load(tmp_path / "m.safetensors").predict(1, 1).shape == (1,)


@pytest.mark.parametrize(
    "make",
    [
        lambda: eckart.PCA(2),
        lambda: eckart.TruncatedSVD(2, random_state=0),
        lambda: eckart.NMF(2, random_state=0, max_iter=5),
    ],
)
def test_shards_of_counts_are_one_matrix_for_every_model(tmp_path, make):
    from scipy import sparse

    x = sparse.random(90, 20, 0.3, format="csr", random_state=0)
    eckart.write_shards([x[:40], x[40:60], x[60:]], tmp_path)
    shards = eckart.shards(tmp_path / "*.npz")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_allclose(
            make().fit(shards).components_, make().fit(x).components_, atol=1e-6
        )
    eckart.write_shards([sparse.eye(3)], tmp_path, name="z")
    with pytest.raises(InputError, match="files must have the same number of columns, got 3 in"):
        make().fit(eckart.shards(tmp_path / "*.npz"))
