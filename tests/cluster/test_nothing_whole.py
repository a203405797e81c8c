"""Every model that works on a cluster, on a Dask collection, with its certificate: nobody ever
holds the whole of the data.

What is counted: blocks that tasks work on, arguments and answers of every call, and what the
process that calls ``fit`` asks of the matrix.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse

import eckart
from eckart import (
    ALS,
    EASE,
    LDA,
    NMF,
    PCA,
    PLSA,
    PMI,
    SLIM,
    SVP,
    BayesianMF,
    GaussianMixture,
    GloVe,
    LinearAutoencoder,
    MixedTable,
    Mixture,
    Projection,
    SkipGram,
    SoftImpute,
    SpectralFilter,
    TimeFactors,
)
from eckart.clusters.client import ClusterError
from eckart.engines.blocks import spreading as work
from eckart.engines.blocks.engine import BlocksEngine
from eckart.engines.dask import runner
from eckart.errors import EckartError, InputError
from eckart.io.dask import parts as task_parts
from eckart.matrix_blocks import _Parted

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
db = pytest.importorskip("dask.bag")
pd = pytest.importorskip("pandas")

pytestmark = pytest.mark.usefixtures("threads")

PARTS = 8
HOW = {"rows": "user", "columns": "item", "values": "value"}


class Whole(AssertionError):
    """Somebody held all of the data, or a number for each entry."""


@pytest.fixture
def nobody(monkeypatch, small_blocks):
    """Raises where a block, an argument or an answer is as large as the data; returns what was
    met."""
    met = {"tasks": 0, "largest": 0, "entries": 0}

    def sizes(value):
        if isinstance(value, np.ndarray):
            yield value.size
        elif isinstance(value, dict):
            for each in value.values():
                yield from sizes(each)
        elif isinstance(value, (list, tuple)):
            for each in value:
                yield from sizes(each)
        elif hasattr(value, "__dict__") and not isinstance(value, type):
            yield from sizes(vars(value))

    def refuse(*_):
        raise Whole("all entries were asked for at once")

    attempt, call = work.attempt, runner.DaskRunner.call

    def attempted(engine, do, host, at, arguments):
        if hasattr(host, "matrix"):
            size = host.matrix.array.size if hasattr(host.matrix, "array") else host.matrix.nnz
            met["tasks"] += 1
            met["largest"] = max(met["largest"], size)
        return attempt(engine, do, host, at, arguments)

    def called(self, handles, places, do, shared, own, join, into=None):
        answer = call(self, handles, places, do, shared, own, join, into)
        if met["entries"]:
            for size in (*sizes(shared), *sizes(own), *sizes(answer)):
                if size == met["entries"]:
                    raise Whole(
                        f"{getattr(do, 'name', do)} sends or answers a number for each entry"
                    )
        return answer

    loads = task_parts.TaskParts.load
    monkeypatch.setattr(
        task_parts.TaskParts,
        "load",
        lambda self, part: refuse() if len(self.tasks) == 1 else loads(self, part),
    )
    monkeypatch.setattr(_Parted, "_whole", property(refuse))
    monkeypatch.setattr(BlocksEngine, "_together", refuse)
    monkeypatch.setattr(work, "stacked", refuse)
    monkeypatch.setattr(work, "attempt", attempted)  # workers are threads of this process
    monkeypatch.setattr(runner.DaskRunner, "call", called)
    return met


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks, and samples of bounded size, that are small beside these data."""
    from eckart.complete import demand
    from eckart.explain.mixtures import starts
    from eckart.io.dask import long

    monkeypatch.setattr(long, "LEAST_BLOCK", 2**10)
    monkeypatch.setattr(starts, "SAMPLE_ROWS", 100)
    monkeypatch.setattr(demand, "JUDGED_ENTRIES", 500)


RNG = np.random.default_rng(0)
ROWS = (
    np.abs(
        RNG.standard_normal((803, 3)) @ RNG.standard_normal((3, 41))
        + 0.1 * RNG.standard_normal((803, 41))
    )
    + 0.2
)
GAPS = np.where(RNG.random(ROWS.shape) < 0.2, np.nan, ROWS)
TEXTS = [
    " ".join(
        RNG.choice(["sun", "moon", "star", "red"] if i % 2 else ["cat", "dog", "fish", "red"], 9)
    )
    for i in range(160)
]


def table(value):
    user, item = np.divmod(RNG.permutation(240 * 30)[:2411], 30)
    frame = pd.DataFrame(
        {"user": user, "item": item, "value": value(user, item).astype(np.float64)}
    )
    return dd.from_pandas(frame, npartitions=PARTS)


LEFT, RIGHT = RNG.standard_normal((240, 2)), RNG.standard_normal((30, 2))


def natural(user, item):
    return (LEFT[user] * RIGHT[item]).sum(axis=1)


DATA = {
    "rows": lambda: da.from_array(ROWS, chunks=(100, 20)),
    "gaps": lambda: da.from_array(GAPS, chunks=(100, 41)),
    "numbers": lambda: table(lambda i, j: natural(i, j) + 0.1 * RNG.standard_normal(len(i))),
    "grades": lambda: table(lambda i, j: np.clip(np.round(3 + natural(i, j)), 1, 5)),
    "answers": lambda: table(lambda i, j: natural(i, j) + RNG.standard_normal(len(i)) > 0),
    "counts": lambda: table(lambda i, j: RNG.poisson(np.exp(np.clip(natural(i, j), -3, 2)))),
    "strengths": lambda: table(lambda i, j: 1 + RNG.poisson(np.exp(np.clip(natural(i, j), -3, 2)))),
    "texts": lambda: db.from_sequence(TEXTS, npartitions=PARTS),
    "blocks": lambda: db.from_sequence(
        [sparse.random(40, 25, 0.3, format="csr", random_state=s) for s in range(PARTS)],
        npartitions=PARTS,
    ),
}
SIZES = {
    "rows": ROWS.size,
    "gaps": int(np.isfinite(GAPS).sum()),
    "numbers": 2411,
    "grades": 2411,
    "answers": 2411,
    "counts": 2411,
    "strengths": 2411,
}

PRIORS = {"doc_topic_prior": 0.1, "topic_word_prior": 0.01}
FEW = {"n_samples": 4, "burn_in": 2, "thin": 1}
MODELS = {
    "PCA eigh": (PCA(3, svd_solver="eigh"), "rows"),
    "PCA randomized": (PCA(3, svd_solver="randomized"), "rows"),
    "PCA lanczos": (PCA(3, svd_solver="lanczos"), "rows"),
    "PCA power": (PCA(3, svd_solver="power"), "rows"),
    "PCA of sparse blocks": (PCA(3), "blocks"),
    "PCA with gaps": (PCA(2, max_iter=4), "gaps"),
    "LinearAutoencoder": (LinearAutoencoder(3), "rows"),
    "ALS": (ALS(2, max_iter=4), "grades"),
    "ALS implicit": (ALS(2, max_iter=4, feedback="implicit"), "strengths"),
    "ALS logistic": (ALS(2, max_iter=4, loss="logistic"), "answers"),
    "ALS ordered": (ALS(2, max_iter=4, loss="ordered"), "grades"),
    "ALS poisson": (ALS(2, max_iter=4, loss="poisson"), "counts"),
    "BayesianMF": (BayesianMF(2, **FEW), "numbers"),
    "BayesianMF probit": (BayesianMF(2, likelihood="probit", **FEW), "answers"),
    "BayesianMF ordinal": (BayesianMF(2, likelihood="ordinal", **FEW), "grades"),
    "BayesianMF poisson": (BayesianMF(2, likelihood="poisson", **FEW), "counts"),
    "SVP": (SVP(2, max_iter=6), "numbers"),
    "SVP by columns": (SVP(2, max_iter=6, normalise="column"), "gaps"),
    "SoftImpute": (SoftImpute(tau=5.0, max_iter=20), "numbers"),
    "SoftImpute of grades": (SoftImpute(tau=5.0, max_iter=20), "grades"),
    "SoftImpute, tau chosen": (SoftImpute(2, max_iter=20), "numbers"),
    "GaussianMixture": (GaussianMixture(2, max_iter=4), "rows"),
    "Mixture": (Mixture(2, max_iter=4), "rows"),
    "PLSA": (PLSA(2, max_iter=4), "texts"),
    "LDA cvb0": (LDA(2, max_iter=4, learning_method="cvb0", **PRIORS), "texts"),
    "LDA variational": (LDA(2, max_iter=4, learning_method="variational"), "texts"),
    "LDA online": (LDA(2, max_iter=2, learning_method="online", batch_size=32), "texts"),
    "NMF": (NMF(2, max_iter=4), "rows"),
    "NMF of sparse blocks": (NMF(2, max_iter=4), "blocks"),
    "NMF kl": (NMF(2, max_iter=4, beta_loss="kl"), "rows"),
    "PMI": (PMI(2, min_count=1), "texts"),
    "GloVe": (GloVe(2, min_count=1, solver="als"), "texts"),
    "EASE": (EASE(l2=5.0), "strengths"),
    "SLIM": (SLIM(), "strengths"),
    "SpectralFilter": (SpectralFilter(3), "strengths"),
}


SHORT = ("ALS", "SVP", "LDA cvb0")
"""What the suite runs of them; `make test-cluster` runs all."""


@pytest.mark.parametrize(
    "name",
    [name if name in SHORT else pytest.param(name, marks=pytest.mark.cluster) for name in MODELS],
)
def test_no_task_and_no_step_of_the_client_holds_the_whole_data(nobody, name):
    model, kind = MODELS[name]
    model.set_params(random_state=0)
    x, how = DATA[kind](), HOW if kind not in ("rows", "gaps", "texts", "blocks") else {}
    nobody["entries"] = SIZES.get(kind, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, **how)
        assert model.fit_.plan["engine"] == "dask"
        read = eckart.read(x, **how) if how else x
        if hasattr(model, "certify") and kind != "texts":
            again = model.certify(read)
            assert again.kind == model.certificate_.kind
        if hasattr(model, "recommend"):
            top = model.recommend(n=3)
            assert top.columns.shape == (model.observed_.shape[0], 3)
    if kind != "texts" or name.startswith(("LDA", "PLSA")):
        assert nobody["tasks"] >= PARTS
    if nobody["entries"]:
        assert nobody["largest"] <= nobody["entries"] / 3


@pytest.mark.parametrize(
    ("fit", "words"),
    [
        (
            lambda: TimeFactors(2).fit(DATA["numbers"](), **HOW),
            r"X must be a table in memory, got parts \(shards or a Dask collection\): chains go through",
        ),
        (
            lambda: MixedTable(2).fit(
                dd.from_pandas(pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}), npartitions=1)
            ),
            "X must be a table in memory, got a Dask collection: a mixed table is fitted whole",
        ),
        (
            lambda: SoftImpute(loss="logistic").fit(DATA["answers"](), **HOW),
            "loss must be 'squared' for data in parts, got 'logistic'",
        ),
        (lambda: GloVe(2, solver="adagrad").fit(DATA["texts"]()), "use solver='als'"),
        (lambda: SkipGram(2).fit(DATA["texts"]()), "use PMI or GloVe"),
        (
            lambda: LDA(2, learning_method="gibbs").fit(DATA["texts"]()),
            "use learning_method='cvb0', 'variational' or 'online'",
        ),
        (
            lambda: ALS(2, loss="ordered").fit(
                eckart.read(DATA["grades"](), **HOW), weights=np.ones(2411)
            ),
            "weights need data in memory, got data in parts",
        ),
    ],
    ids=["time", "mixed", "loss", "adagrad", "skip-gram", "gibbs", "weights"],
)
def test_what_needs_one_place_says_in_one_line_what_to_use(nobody, fit, words):
    with pytest.raises(EckartError, match=words) as told:
        fit()
    assert "\n" not in str(told.value)


def test_a_projection_of_an_array_stays_in_its_partitions():
    onto = Projection.onto(np.eye(41)[:, :2], offset=np.ones(41))
    x = DATA["rows"]()
    found = onto(x)
    assert found.chunks[0] == x.chunks[0]  # and nothing is computed yet
    np.testing.assert_allclose(found.compute(), onto(ROWS))


def test_factors_that_do_not_fit_are_refused_with_the_numbers(nobody, monkeypatch):
    """Factors of all rows stay in the process that calls, three times over in a sweep: 270 x 64
    numbers of 8 bytes."""
    from eckart import fit

    x = eckart.read(DATA["numbers"](), **HOW)
    monkeypatch.setattr(fit, "available_memory", lambda: 400_000.0)
    with pytest.raises(
        InputError,
        match=r"n_components must be a number whose arrays fit .*need 0\.0 GiB, 0\.0 GiB are free.*stay in "
        r"this process",
    ):
        ALS(64).fit(x)


def test_factors_that_no_worker_could_hold_are_refused_with_the_numbers(nobody, monkeypatch):
    monkeypatch.setattr(runner, "least_memory", lambda client: 2.0**20)
    monkeypatch.setattr(runner, "INLINE", 0)
    with pytest.raises(
        ClusterError,
        match=r"factors of 0\.00 GiB go to every worker.*a worker has 0\.00 GiB; use fewer "
        r"components",
    ):
        runner.DaskRunner(None, 1)._fits(2**20)
    ALS(2, max_iter=2).fit(DATA["numbers"](), **HOW)  # what fits goes there
