"""What solvers refuse, in words: one line for each refusal. A refusal that is gone gives a wrong
answer, or an error that names nothing."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import eckart
from eckart import (
    ALS,
    EASE,
    LDA,
    NMF,
    PCA,
    PMI,
    SVP,
    Autoencoder,
    BayesianMF,
    Blend,
    FileError,
    GaussianMixture,
    GloVe,
    IncrementalPCA,
    InputError,
    LatentDirichletAllocation,
    LinearAutoencoder,
    MiniBatchNMF,
    Mixture,
    Projection,
    SkipGram,
    SoftImpute,
    TruncatedSVD,
    Vectors,
)
from eckart.complete.factors import majorise
from eckart.complete.nuclear import exact, path, svp, svt
from eckart.embed.collected import collected
from eckart.engines import engine_named
from eckart.explain.parts.consensus import select_rank
from eckart.explain.topics import documents
from eckart.explain.topics.judge import top_words
from eckart.matrix_blocks import of_parts
from eckart.matrix_parts import MemoryParts
from eckart.reduce import plan, select
from resumable_fits import counts, groups, holes, noise, parts, words

SHORT = {"random_state": 0, "max_iter": 2}
CHAIN = {"n_samples": 2, "burn_in": 1, "thin": 1, "random_state": 0}


@cache
def fitted(name):
    """Small models that were fitted, one of a kind."""
    gaps, x = holes()[:12, :6], noise()[:, :4]
    return {
        "pca": lambda: PCA(2).fit(x),
        "truncated": lambda: TruncatedSVD(1, random_state=0).fit(x),
        "linear": lambda: LinearAutoencoder(1, max_iter=5, random_state=0).fit(x),
        "als": lambda: ALS(1, **SHORT).fit(gaps),
        "chain": lambda: BayesianMF(1, **CHAIN).fit(gaps),
        "soft": lambda: SoftImpute(tau=1.0, random_state=0).fit(gaps),
        "svp": lambda: SVP(1, **SHORT).fit(gaps),
        "ease": lambda: EASE(1.0).fit(sparse.csr_array(counts()[:, :5])),
        "named": lambda: EASE(1.0).fit(
            pd.DataFrame({"u": list("aabb"), "i": list("xyxz"), "v": [1.0] * 4}),
            rows="u",
            columns="i",
            values="v",
        ),
        "mixture": lambda: GaussianMixture(2, random_state=0).fit(groups()),
        "factor": lambda: GaussianMixture(
            2, covariance_type="factor", n_factors=1, random_state=0
        ).fit(groups()),
        "multinomial": lambda: Mixture(2, family="multinomial", random_state=0).fit(counts()),
        "nmf": lambda: NMF(2, **SHORT).fit(parts()),
        "topics": lambda: LDA(2, learning_method="cvb0", **SHORT).fit(counts()),
        "glove": lambda: GloVe(2, min_count=1, **SHORT).fit(words()),
        "pmi": lambda: PMI(2, min_count=1, random_state=0).fit(words()),
        "skip": lambda: SkipGram(2, min_count=1, solver="exact", **SHORT).fit(words()),
        "vectors": lambda: Vectors(["a", "b", "c"], np.eye(3)),
    }[name]()


def once(x=None):
    """Rows that can be read once."""
    return iter([noise()[:10, :4], noise()[10:20, :4]] if x is None else x)


def given(**attributes):
    model = attributes.pop("of", None) or GaussianMixture(2)
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


def unseen(name):
    """A copy whose attributes may be changed."""
    import copy

    return copy.deepcopy(fitted(name))


def observed():
    return eckart.observed(holes()[:12, :6])


def empty(rows, columns):
    return eckart.Observed(
        np.zeros(rows + 1, np.int64), np.zeros(0, np.int32), np.zeros(0), columns
    )


def loaded(model, tmp="model.safetensors"):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / tmp)
        return eckart.load(Path(folder) / tmp)


def stored(model, tmp="model.safetensors"):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / tmp)
        return eckart.read_vectors(Path(folder) / tmp)


GAPS = np.where(np.eye(6, 4) > 0, np.nan, 1.0 + np.arange(24.0).reshape(6, 4))
ONES = np.where(np.isnan(GAPS), np.nan, 1.0)
WITH = {"engine": engine_named("cpu", 1), "rng": np.random.default_rng(0)}
SQUARE = np.array([[2.0, 1.0], [1.0, 2.0]])
WEIGHTS, MEANS = np.array([0.5, 0.5]), np.zeros((2, 2))

REFUSALS = {
    "chart level": (
        lambda: fitted("pca").outliers(noise()[:, :4], level=1.0),
        r"level must be a share between 0 and 1, got 1\.0",
    ),
    "parts of a basis": (
        lambda: given(
            of=PCA(1), components_=np.eye(3)[:1], mean_=np.zeros(2), explained_variance_=[1.0]
        ),
        "they belong to one model",
    ),
    "variances of a basis": (
        lambda: given(
            of=PCA(1), components_=np.eye(3)[:1], mean_=np.zeros(3), explained_variance_=[1.0, 1.0]
        ),
        "they belong to one model",
    ),
    "size of a basis": (
        lambda: given(of=unseen("pca"), components_=np.eye(3)[:1]),
        r"components_ must have shape \(2, 4\), got \(1, 3\)",
    ),
    "count of a basis": (
        lambda: given(
            of=PCA(1),
            n_components_=2,
            components_=np.eye(3)[:1],
            mean_=np.zeros(3),
            explained_variance_=[1.0],
        ),
        "n_components_ must be 1, the rows of components_, got 2",
    ),
    "angles of a cube": (
        lambda: eckart.principal_angles(np.zeros((2, 2, 2)), np.eye(2)),
        "span must be columns of a matrix, got 3 dimensions",
    ),
    "share of a variance": (
        lambda: eckart.select_components(noise(), share=1.0),
        r"share must be a share between 0 and 1, got 1\.0",
    ),
    "share of rows": (
        lambda: eckart.select_components(noise(), held_out=0.0),
        r"held_out must be a share between 0 and 1, got 0\.0",
    ),
    "all eigenvalues": (
        lambda: PCA("mle", svd_solver="lanczos").fit(noise()),
        "needs all eigenvalues",
    ),
    **{
        f"attributes with {said}": (
            lambda more=more: ALS(1, **more).fit(
                holes()[:12, :6], row_features=pd.DataFrame(noise()[:12, :2])
            ),
            f"row_features and column_features need .*, got {said}",
        )
        for said, more in (
            ("loss='poisson'", {"loss": "poisson"}),
            ("nonnegative=True", {"nonnegative": True}),
            ("l2=0", {"l2": 0}),
            ("l2_bias=0", {"l2_bias": 0}),
            ("solver='cg'", {"solver": "cg"}),
        )
    },
    "normalised counts": (
        lambda: ALS(1, loss="poisson", biases=False, normalise="column").fit(holes()),
        r"normalise must be None or 'auto' with loss='poisson', got 'column'\. biases=True does",
    ),
    "a negative start": (
        lambda: NMF(1, init="custom").fit(parts(), W=-np.ones((60, 1)), H=np.ones((1, 20))),
        r"Negative values in data passed to NMF \(input W\)",
    ),
    "an infinite start": (
        lambda: NMF(1, init="custom").fit(parts(), W=np.ones((60, 1)), H=np.full((1, 20), np.inf)),
        "H must hold finite numbers >= 0, got NaN or infinity",
    ),
    "no count of words": (
        lambda: eckart.sequences([["a"]], min_count=0),
        "min_count must be an int >= 1, got 0",
    ),
    "no words at all": (
        lambda: eckart.sequences([["a"]], max_words=0),
        "max_words must be None or an int >= 1, got 0",
    ),
    "gaps, incremental": (lambda: IncrementalPCA(1).fit(GAPS), "complete rows for"),
    "gaps, batches": (lambda: PCA(1).partial_fit(GAPS), "complete rows for partial_fit"),
    "gaps, truncated": (lambda: TruncatedSVD(1).fit(GAPS), "complete rows for TruncatedSVD"),
    "gaps, truncated rows": (
        lambda: TruncatedSVD(1, random_state=0).fit(noise()[:, :4]).transform(GAPS),
        "complete rows for TruncatedSVD",
    ),
    "entries, truncated": (
        lambda: TruncatedSVD(1).fit(eckart.observed(GAPS)),
        "complete rows for TruncatedSVD",
    ),
    "entries, truncated rows": (
        lambda: (
            TruncatedSVD(1, random_state=0).fit(noise()[:, :4]).transform(eckart.observed(GAPS))
        ),
        "complete rows for TruncatedSVD",
    ),
    "scaled sketch": (
        lambda: PCA(1, scale=True).partial_fit(np.zeros((3, plan.STATISTIC_COLUMNS + 1))),
        "X must have at most 2048 columns for partial_fit with scale=True, got 2049: a sketch of",
    ),
    "gaps, not centered": (lambda: PCA(1, center=False).fit(GAPS), "without a mean"),
    "a stream from a file": (
        lambda: loaded(PCA(1).partial_fit(noise()[:, :4])).partial_fit(noise()[:, :4]),
        "does not hold its running statistic",
    ),
    "read once, twice": (lambda: PCA(1).fit_transform(once()), "can be read once only"),
    "read once, scaled": (lambda: PCA(1, scale=True).fit(once()), "read once only"),
    "read once, large": (
        lambda: PCA(1).fit(once([np.full((5, 3), 1e170) * np.arange(15.0).reshape(5, 3)])),
        "multiply them by a constant first",
    ),
    "unknown length, weights": (
        lambda: PCA(1).fit(once(), sample_weight=np.ones(20)),
        "number of rows is known",
    ),
    "beyond range": (lambda: PCA(1).fit(noise()[:, :4] * 1e200), "beyond the range of float64"),
    "other scale": (
        lambda: PCA(1).fit(noise()[:, :4] * 1e100).certify(noise()[:, :4] * 1e-250),
        "far smaller than the model",
    ),
    "memory": (
        lambda: plan.require_memory(plan.Plan("svd", "", 1, 1.0, 2.0**31), 2.0**30),
        "solver 'svd' needs about 2.0 GiB beyond the data, 1.0 GiB",
    ),
    "solver": (
        lambda: PCA(1, svd_solver="fast").fit(noise()),
        "svd_solver must be 'auto', 'eigh', 'svd', 'power', 'randomized', 'lanczos', 'gradient',",
    ),
    "components": (
        lambda: PCA(26).fit(noise()),
        "n_components must be 0 to 25 for data of 50 rows and 25 columns, got 26",
    ),
    "components below": (
        lambda: PCA(-1).fit(noise()),
        "n_components must be 0 to 25 for data of 50 rows and 25 columns, got -1",
    ),
    "share": (
        lambda: PCA(1.5).fit(noise()),
        r"n_components must be a share between 0 and 1, or an int, got 1\.5",
    ),
    "square": (
        lambda: eckart.power_method(np.ones((2, 3))),
        r"a must be a square symmetric matrix, got shape \(2, 3\)",
    ),
    "symmetric": (
        lambda: eckart.power_method(np.array([[1.0, 2.0], [0.0, 1.0]])),
        "a is not symmetric",
    ),
    "infinite": (
        lambda: eckart.power_method(np.array([[1.0, np.inf], [np.inf, 1.0]])),
        "a must hold finite numbers, got inf at row 0, column 1",
    ),
    "too many pairs": (lambda: eckart.power_method(SQUARE, 3), "k must be 0 to"),
    "size of a function": (lambda: eckart.power_method(lambda v: v), "the size of the matrix"),
    "spaces": (
        lambda: eckart.principal_angles(np.eye(3), np.eye(4)),
        "subspaces must be of the same space, got 3 and 4 dimensions",
    ),
    "offset": (
        lambda: Projection(np.eye(3)[:, :1], np.zeros(2)),
        r"offset must have shape \(3,\), got \(2,\)",
    ),
    "orthonormal": (lambda: Projection(2 * np.eye(3)[:, :1]), "basis is not orthonormal"),
    "composition": (
        lambda: Projection(np.eye(3)[:, :1]) @ Projection(np.eye(4)[:, :1]),
        "projections must be of the same space, got 3 and 4 dimensions",
    ),
    "points": (
        lambda: Projection(np.eye(3)[:, :1])(np.zeros(4)),
        r"points must have shape \(\.\.\., 3\), got \(4,\)",
    ),
    "span": (
        lambda: Projection.onto(np.array([[1.0], [np.nan]])),
        "span must hold finite numbers, got nan at row 1, column 0",
    ),
    "span of cubes": (
        lambda: Projection.onto(np.zeros((2, 2, 2))),
        "span must be columns of a matrix, got 3 dimensions",
    ),
    "select method": (
        lambda: eckart.select_components(noise(), methods=("guess",)),
        "methods must be names among held_out, gavish_donoho, parallel, share, got 'guess'",
    ),
    "select share": (
        lambda: eckart.select_components(noise(), share=1.0),
        r"share must be a share between 0 and 1, got 1\.0",
    ),
    "select held out": (
        lambda: eckart.select_components(noise(), held_out=0.0),
        r"held_out must be a share between 0 and 1, got 0\.0",
    ),
    "time, ALS": (
        lambda: ALS(1).fit(
            pd.DataFrame({"u": [0, 1], "i": [0, 1], "v": [1.0, 2.0], "t": [0.0, 1.0]}),
            rows="u",
            columns="i",
            values="v",
            time="t",
        ),
        "time is for BayesianMF, which has bins of time, not for ALS",
    ),
    "shape, ALS": (
        lambda: fitted("als").certify(holes()[:9, :6]),
        "the data that the model was fitted to",
    ),
    "shape, chain": (
        lambda: fitted("chain").certify(holes()[:9, :6]),
        "the data that the model was fitted to",
    ),
    "shape, soft": (
        lambda: fitted("soft").certify(holes()[:9, :6]),
        "the data that the model was fitted to",
    ),
    "shape, svp": (
        lambda: fitted("svp").certify(holes()[:9, :6]),
        "the data that the model was fitted to",
    ),
    "conjugate gradients": (
        lambda: ALS(1, solver="cg").fit(holes()),
        "'auto' or 'cholesky' with biases",
    ),
    "weights, soft": (
        lambda: SoftImpute(tau=1.0).fit(GAPS, weights=ONES),
        "counts every entry alike",
    ),
    "weights, svp": (lambda: SVP(1).fit(GAPS, weights=ONES), "SVP counts every entry alike"),
    "similar, neither": (lambda: fitted("ease").similar(), "exactly one of them"),
    "similar, both": (lambda: fitted("ease").similar(rows=[0], columns=[1]), "exactly one of them"),
    "weights, items": (lambda: EASE().fit(GAPS, weights=ONES), "strengths='raw'"),
    "rank of svp": (lambda: svp.solve(observed(), -1, **WITH), "k must be 0 or more, got -1"),
    "rank of exact": (lambda: exact.solve(observed(), -1, **WITH), "k must be 0 or more, got -1"),
    "step of svp": (
        lambda: svp.solve(observed(), 1, step=0.0, **WITH),
        r"step must be a number > 0, or None to have it chosen, got 0\.0",
    ),
    "step of svt": (
        lambda: svt.solve(observed(), step=-1.0, **WITH),
        r"step must be a number > 0, or None to have it chosen, got -1\.0",
    ),
    "tau of svt": (
        lambda: svt.solve(observed(), tau=0.0, **WITH),
        r"tau must be a number > 0, or None to have it chosen, got 0\.0",
    ),
    "method of a path": (
        lambda: path.solve(observed(), 1.0, method="guess", **WITH),
        "method must be 'descent' or 'proximal', got 'guess'",
    ),
    "sketch": (lambda: eckart.randomized_svd(SQUARE, 3), "k must be 0 to"),
    "matrix": (
        lambda: eckart.randomized_svd(np.ones(3), 1),
        r"a must have rows and columns, got 1 dimension\(s\)",
    ),
    "matrix of NaN": (
        lambda: eckart.randomized_svd(np.array([[1.0, np.nan]]), 1),
        "a must hold finite numbers, got nan at row 0, column 1",
    ),
    "rank of a recovery": (
        lambda: eckart.recovery(GAPS, 5),
        "k must be an int from 0 to 4 for 6 rows and 4 columns, got 5",
    ),
    "level": (
        lambda: fitted("chain").interval([0], [0], 1.0),
        r"level must be a probability between 0 and 1, got 1\.0",
    ),
    "time, none": (
        lambda: fitted("chain").predict([0], [0], time=[1.0]),
        r"time= needs a model that was fitted with fit\(\.\.\., time=\)",
    ),
    "axis, items": (
        lambda: fitted("ease").fold_in(counts()[:2, :5], axis="columns"),
        "the weights of new columns need a new fit",
    ),
    "axis, update": (
        lambda: unseen("ease").update(sparse.csr_array(counts()[:2, :5]), axis="columns"),
        "the weights of new columns need a new fit",
    ),
    "ids, update": (
        lambda: unseen("named").update(eckart.observed(np.ones((1, 3)))),
        "both have row ids",
    ),
    "statistics of a file": (
        lambda: loaded(GaussianMixture(2, random_state=0).partial_fit(groups())).partial_fit(
            groups()
        ),
        "does not hold its running statistics",
    ),
    "means of a start": (
        lambda: GaussianMixture(2, means_init=np.zeros((3, 3))).fit(groups()),
        r"shape of \(2, 3\), but got \(3, 3\): set means_init",
    ),
    "NaN in a start": (
        lambda: GaussianMixture(2, means_init=np.full((2, 3), np.nan)).fit(groups()),
        "means_init must hold finite numbers, got NaN or infinity",
    ),
    "weights of a start": (
        lambda: GaussianMixture(2, weights_init=[0.5, 0.6]).fit(groups()),
        "add up to one",
    ),
    "negative weights": (
        lambda: GaussianMixture(2, weights_init=[1.5, -0.5]).fit(groups()),
        "add up to one",
    ),
    "precisions of a start": (
        lambda: GaussianMixture(2, precisions_init=-np.ones((2, 3)), covariance_type="diag").fit(
            groups()
        ),
        "must hold numbers > 0, got",
    ),
    "precisions of factors": (
        lambda: GaussianMixture(2, precisions_init=np.ones((2, 3)), covariance_type="unit").fit(
            groups()
        ),
        "None with covariance_type='unit'",
    ),
    "precision not positive": (
        lambda: GaussianMixture(2, precisions_init=np.array([np.eye(3), -np.eye(3)])).fit(groups()),
        "symmetric, positive-definite: precisions_init of component 1 is not; give",
    ),
    "precisions not square": (
        lambda: given(precisions_=np.ones((2, 2, 3))),
        r"precisions_ must be square matrices, got shape \(2,",
    ),
    "precisions of one matrix": (
        lambda: given(precisions_=np.eye(2)),
        r"precisions_ must be square matrices, got shape \(2,",
    ),
    "covariances not symmetric": (
        lambda: given(covariances_=np.array([[[1.0, 0.5], [0.0, 1.0]]] * 2)),
        "covariance' should be symmetric, positive-definite",
    ),
    "covariances below zero": (
        lambda: given(
            of=GaussianMixture(2, covariance_type="diag"), covariances_=np.array([[1.0, 0.0]])
        ),
        "must hold numbers > 0, got",
    ),
    "sizes of a mixture": (
        lambda: given(weights_=np.ones(3) / 3, means_=MEANS, covariances_=np.array([SQUARE] * 2)),
        r"weights_, means_ and covariances must have shapes \(k,\), \(k, n\) and \(2, 2, 2\) for",
    ),
    "weights of a mixture": (
        lambda: given(weights_=WEIGHTS * 1.1, means_=MEANS, covariances_=np.array([SQUARE] * 2)),
        "add up to one",
    ),
    "signs of a mixture": (
        lambda: given(
            weights_=np.array([1.5, -0.5]), means_=MEANS, covariances_=np.array([SQUARE] * 2)
        ),
        "add up to one",
    ),
    "NaN in a mixture": (
        lambda: given(means_=np.array([[np.nan]])),
        "something else than finite numbers",
    ),
    "texts in a mixture": (
        lambda: given(means_=np.array([["a"]])),
        "something else than finite numbers",
    ),
    "what to impute": (
        lambda: fitted("multinomial").impute(counts()),
        "family must be of Gaussian or Bernoulli components to impute, got 'multinomial': others",
    ),
    "criterion": (
        lambda: eckart.select_mixture(groups(), criterion="guess"),
        "criterion must be 'bic', 'aic', 'held_out', got 'guess'",
    ),
    "mixture held out": (
        lambda: eckart.select_mixture(groups(), held_out=1.0, criterion="held_out"),
        r"held_out must be a share between 0 and 1, got 1\.0",
    ),
    "no mixtures": (
        lambda: eckart.select_mixture(groups(), ()),
        "n_components and covariance_types must have at least one value each, got none",
    ),
    "no kinds": (
        lambda: eckart.select_mixture(groups(), (1,), ()),
        "n_components and covariance_types must have at least one value each, got none",
    ),
    "one side": (
        lambda: eckart.select_mixture(
            groups()[:1], (1,), ("diag",), criterion="held_out", random_state=0
        ),
        "rows on both sides",
    ),
    "read once, mixture": (lambda: GaussianMixture(2).fit(once()), "EM reads its rows many times"),
    "no ranks": (lambda: select_rank(parts(), ()), "ks must be ranks of at least 1, got"),
    "rank zero": (lambda: select_rank(parts(), (0, 1)), "ks must be ranks of at least 1, got"),
    "rank held out": (
        lambda: select_rank(parts(), (1,), held_out=0.0),
        r"held_out must be a share between 0 and 1, got 0\.0",
    ),
    "unknown length": (
        lambda: MiniBatchNMF(2).fit(once([parts()[:10]])),
        "the number of rows must be known, got a stream of unknown length",
    ),
    "gaps, mini": (lambda: MiniBatchNMF(2).fit(holes()), "complete rows for MiniBatchNMF"),
    "start, mini": (
        lambda: MiniBatchNMF(9, init="nndsvd").fit(parts(30, 8)),
        "init = 'nndsvd' can only be used when",
    ),
    "stream of parts": (
        lambda: loaded(NMF(2, random_state=0).partial_fit(parts())).partial_fit(parts()),
        "does not hold its running statistic",
    ),
    "rows of parts": (
        lambda: fitted("nmf").certify(parts()[:9]),
        "X must be the data that the model was fitted to, of 60 rows, got 9",
    ),
    "shape of a start": (
        lambda: NMF(2, init="custom").fit_transform(parts(), W=np.ones((3, 2)), H=np.ones((2, 20))),
        r"W must have shape \(60, 2\), got \(3, 2\)",
    ),
    "gaps, parts": (lambda: NMF(2).partial_fit(holes()), "complete rows for partial_fit"),
    "als with gaps": (
        lambda: NMF(2, solver="als").fit(holes()),
        "'hals' for data with missing entries",
    ),
    "split": (
        lambda: eckart.split_tokens(counts(), 1.0),
        r"share must be a number between 0 and 1, got 1\.0",
    ),
    "halves": (
        lambda: eckart.document_completion(np.full((2, 20), 0.05), counts(), counts()[:9]),
        "two halves of the same documents",
    ),
    "top words": (
        lambda: top_words(fitted("topics").fit_.factors, 3, "guess"),
        "by must be 'probability' or 'lift', got 'guess'",
    ),
    "vocabularies": (
        lambda: eckart.align_topics(np.full((2, 3), 1 / 3), np.full((2, 4), 0.25)),
        "the same vocabulary",
    ),
    "names": (lambda: eckart.coherence([["a", "b"]], counts()), "X has no column names"),
    "unknown name": (
        lambda: eckart.coherence([["a", "zz"]], pd.DataFrame(counts()[:, :2], columns=["a", "b"])),
        "'zz' of a topic is no column of X",
    ),
    "documents on both sides": (
        lambda: eckart.select_topics(LDA(), counts()[:2], (2,), held_out=1e-9),
        "documents on both sides",
    ),
    "prior": (
        lambda: LDA(2, doc_topic_prior="much").fit(counts()),
        "doc_topic_prior must be 'auto', None, a number > 0 or an array of them, got 'much'",
    ),
    "window": (
        lambda: eckart.cooccurrence(words(), window=0),
        "window must be an int from 1 to 10000, got 0",
    ),
    "sides": (
        lambda: eckart.cooccurrence(words(), sides="up"),
        "sides must be 'both' or 'left' or 'right', got 'up'",
    ),
    "weighting": (
        lambda: eckart.cooccurrence(words(), weighting="up"),
        "weighting must be 'harmonic' or 'flat' or 'linear', got 'up'",
    ),
    "words of glove": (
        lambda: fitted("glove").certify([["a", "zz"]] * 3),
        "the data that the model was fitted to",
    ),
    "words of pmi": (
        lambda: fitted("pmi").certify([["a", "zz"]] * 3),
        "the data that the model was fitted to",
    ),
    "words of skip-gram": (
        lambda: fitted("skip").certify([["a", "zz"]] * 3),
        "the text must be the text of the fit, got other words than the model was fitted to",
    ),
    "counts of skip-gram": (
        lambda: fitted("skip").certify(eckart.cooccurrence([["a", "b"]] * 3, min_count=1)),
        "counts must be those of the model's 4 words, got counts of 2 words",
    ),
    "no pair": (
        lambda: PMI(1, min_count=1).fit([["a"], ["b"]]),
        "at least one pair of words must stand near each other, got none",
    ),
    "no neighbour": (
        lambda: SkipGram(1, min_count=1).fit([["a"], ["b"]]),
        "at least one sentence must have two words of the vocabulary, got none",
    ),
    "names of pairs": (
        lambda: PMI(1).fit(
            eckart.Counts(
                np.array([0, 1, 2]),
                np.array([1, 0]),
                np.ones(2),
                2,
                np.array(["a", "b"]),
                np.array(["a", "c"]),
            )
        ),
        "the same words in the same order",
    ),
    "sample": (
        lambda: SkipGram(1, min_count=1, sample=-1.0).fit(words()),
        r"sample must be 'auto' or None or a number >= 0, got -1\.0",
    ),
    "learning rate": (
        lambda: SkipGram(
            2,
            min_count=1,
            sample=None,
            learning_rate=1e30,
            solver="stochastic",
            max_iter=2,
            deterministic=True,
        ).fit(words()),
        "left the range of numbers",
    ),
    "softmax sampled": (
        lambda: SkipGram(1, min_count=1, solver="stochastic", loss="softmax").fit(words()),
        "which is not sampled",
    ),
    "order lost": (
        lambda: SkipGram(1, solver="stochastic").fit(eckart.cooccurrence(words(), min_count=1)),
        "the order of words is lost",
    ),
    "a list that is none": (
        lambda: eckart.sequences([["a", "b"], 3], min_count=1),
        r"list 1 must be a list of items, got a int \('3'\)",
    ),
    "an item that is none": (lambda: eckart.sequences([["a", 1.5]], min_count=1), "1.5"),
    "a model without vectors": (
        lambda: stored(fitted("pca")),
        r"must hold a model of embeddings or be a file of",
    ),
    "vectors": (lambda: Vectors(["a", "b"], np.eye(3)), "2 rows, one for each word"),
    "empty vectors": (lambda: Vectors(["a", "b"], np.zeros((2, 0))), "at least one number each"),
    "mask": (
        lambda: fitted("vectors").neighbours("a", among=np.array([True, False])),
        "one of 3 booleans",
    ),
    "number": (lambda: fitted("vectors").neighbours("a", 0), "n must be an int >= 1, got 0"),
    "number of a map": (lambda: fitted("vectors").map(n=True), "n must be an int, got True"),
    "analogy": (
        lambda: fitted("vectors").analogy("a", "b", "c", method="guess"),
        "method must be 'add' or 'multiply', got 'guess'",
    ),
    "analogies": (
        lambda: fitted("vectors").analogy(["a"], ["b", "c"], ["c"]),
        "lists of one length",
    ),
    "one analogy": (lambda: fitted("vectors").analogy("a", ["b"], ["c"]), "lists of one length"),
    "a vector": (lambda: fitted("vectors").neighbours(np.zeros(2)), "finite vectors of 3 numbers"),
    "a vector of NaN": (
        lambda: fitted("vectors").neighbours(np.full(3, np.nan)),
        "finite vectors of 3 numbers",
    ),
    "pairs": (lambda: fitted("vectors").similarity([("a", "b", "c")]), r"pairs\[0\]"),
    "two lists": (
        lambda: fitted("vectors").similarity(["a"], ["b", "c"]),
        "words must be one each, or lists of one length, got 1 and 2",
    ),
    "one word": (
        lambda: fitted("vectors").odd_one_out(["a"]),
        "at least 2 words with vectors are needed to compare, got 1",
    ),
    "one word of a map": (
        lambda: fitted("vectors").map(["a"]),
        "at least 2 words with vectors are needed for a map, got 1",
    ),
    "no counts": (lambda: fitted("vectors").mean("a b", "sif"), "have no counts"),
    "counts wanted": (lambda: fitted("vectors").neighbours("a", min_count=2), "min_count=2"),
    "weights of words": (lambda: fitted("vectors").mean("a b", np.ones(2)), "3 numbers"),
    "weights below zero": (
        lambda: fitted("vectors").mean("a b", {"a": -1.0}),
        "negative or not finite",
    ),
    "a cube of components": (
        lambda: given(
            of=PCA(1), components_=np.zeros((1, 2, 2)), mean_=np.zeros(2), explained_variance_=[1.0]
        ),
        "2 dimension",
    ),
    "texts as components": (
        lambda: given(
            of=PCA(1),
            components_=np.array([["a", "b"]]),
            mean_=np.zeros(2),
            explained_variance_=[1.0],
        ),
        "finite numbers",
    ),
    "entries, incremental": (
        lambda: IncrementalPCA(1).fit(eckart.observed(GAPS)),
        "complete rows for IncrementalPCA",
    ),
    "entries, batches": (
        lambda: PCA(1).partial_fit(eckart.observed(GAPS)),
        "complete rows for partial_fit",
    ),
    "codes, PCA": (
        lambda: fitted("pca").inverse_transform(np.zeros((2, 3))),
        r"codes must have shape \(rows, 2\), got \(2, 3\)",
    ),
    "codes, truncated": (
        lambda: fitted("truncated").inverse_transform(np.zeros((2, 3))),
        r"codes must have shape \(rows, 1\), got \(2, 3\)",
    ),
    "codes, linear": (
        lambda: fitted("linear").inverse_transform(np.zeros((2, 3))),
        r"codes must have shape \(rows, 1\), got \(2, 3\)",
    ),
    "codes, parts": (
        lambda: fitted("nmf").inverse_transform(np.zeros((2, 3))),
        r"codes must have shape \(rows, 2\), got \(2, 3\)",
    ),
    "all of a truncated": (
        lambda: TruncatedSVD(4, algorithm="arpack").fit(noise()[:, :4]),
        "n_components must be less than 4 with algorithm='arpack', got 4",
    ),
    "share by power": (
        lambda: PCA(0.5, svd_solver="power").fit(noise()),
        r"n_components must be an int for this solver, got 0\.5",
    ),
    "evidence of few rows": (
        lambda: PCA("mle").fit(noise()[:3, :4]),
        "at least as many rows as columns",
    ),
    "a watch": (
        lambda: eckart.power_method(SQUARE, 1, watch=3),
        "watch must be a function of a phase, the steps done and their number, got 3",
    ),
    "a memory": (
        lambda: eckart.power_method(SQUARE, 1, memory=3),
        "memory must be a Memory of a checkpoint, got 3",
    ),
    **{
        f"a start of {said}": (
            lambda first=first: eckart.power_method(SQUARE, 1, start=first),
            "2 finite numbers, not all of them 0",
        )
        for said, first in (
            ("zeros", np.zeros(2)),
            ("three", np.ones(3)),
            ("NaN", np.array([1.0, np.nan])),
        )
    },
    "no components to select": (
        lambda: eckart.select_components(noise(), max_components=0),
        "max_components must be None or an int >= 1, got 0",
    ),
    "no shuffles": (
        lambda: eckart.select_components(noise(), shuffles=0),
        "shuffles must be an int from 1 to 10000, got 0",
    ),
    "too many shuffles": (
        lambda: eckart.select_components(noise(), shuffles=select.MOST_SHUFFLES + 1),
        "shuffles must be an int from 1 to 10000, got 10001",
    ),
    "nothing hidden": (
        lambda: eckart.select_components(
            noise()[:4, :3], methods=("held_out",), held_out=1e-9, random_state=0
        ),
        "a share that hides some of the 12",
    ),
    "nothing hidden, parts": (
        lambda: select_rank(parts()[:4, :3], (1,), held_out=1e-9, random_state=0),
        "a share that hides some of the 12",
    ),
    "ranks that are none": (lambda: select_rank(parts(), "2"), "ranks of at least 1, such as"),
    "ranks of a square": (
        lambda: select_rank(parts(), np.ones((2, 2), int)),
        "ranks of at least 1, such as",
    ),
    "weights, held out": (
        lambda: ALS(1, stop="held_out").fit(GAPS, weights=ONES),
        "weights need stop='decrease' or 'gradient' with weights, got stop='held_out'",
    ),
    "weights, implicit": (
        lambda: ALS(1, feedback="implicit").fit(GAPS, weights=ONES),
        "weights need the strengths in X itself: they are the weights, got feedback='implicit'",
    ),
    "another shape, warm": (
        lambda: ALS(1, warm_start=True, **SHORT).fit(holes()[:12, :6]).fit(holes()[:11, :6]),
        "warm_start=True wants the same rows",
    ),
    "normalised, implicit": (
        lambda: ALS(1, feedback="implicit", normalise="column").fit(GAPS),
        "None or 'auto' with feedback='implicit'",
    ),
    "held out, implicit": (
        lambda: ALS(1, feedback="implicit", stop="held_out").fit(GAPS),
        "'decrease' or 'gradient' with feedback='implicit'",
    ),
    "normalised biases": (
        lambda: ALS(1, biases=True, normalise="column").fit(GAPS),
        "None or 'auto' with biases=True",
    ),
    "weights of parts": (
        lambda: majorise.loss_for("huber", of_parts(MemoryParts(observed(), 5)), np.ones(3)),
        "weights need data in memory, got data in parts",
    ),
    "no tau": (
        lambda: path.solve(observed(), [], **WITH),
        "tau must be a number > 0, or several, got",
    ),
    "a negative tau": (
        lambda: path.solve(observed(), [1.0, -1.0], **WITH),
        "tau must be a number > 0, or several, got",
    ),
    "path of a loss": (
        lambda: SoftImpute(tau=1.0, loss="poisson", path=True).fit(np.abs(GAPS)),
        "path must be False with loss='poisson', got True",
    ),
    "debias of a loss": (
        lambda: SoftImpute(tau=1.0, loss="poisson", debias=True).fit(np.abs(GAPS)),
        "debias must be False with loss='poisson', got True",
    ),
    "weights of a loss": (
        lambda: SoftImpute(tau=1.0, loss="poisson").fit(GAPS, weights=ONES),
        "counts every entry alike",
    ),
    "parts of a loss": (
        lambda: SoftImpute(tau=1.0, loss="huber")._solve(
            of_parts(MemoryParts(observed(), 5)), None
        ),
        "loss must be 'squared' for data in parts, got 'huber'",
    ),
    "normalised loss": (
        lambda: SoftImpute(tau=1.0, loss="poisson", normalise="column").fit(np.abs(GAPS)),
        "'auto', 'bias', 'global' or None with loss",
    ),
    **{
        f"no entry, {type(model).__name__}": (
            lambda model=model: model._check(empty(3, 2)),
            "X must have at least one observed entry, got none",
        )
        for model in (SVP(1), SoftImpute(tau=1.0), BayesianMF(1, **CHAIN))
    },
    "noise of counts": (
        lambda: BayesianMF(1, likelihood="poisson", noise="row").fit(np.abs(GAPS)),
        "noise must be 'common' with likelihood='poisson', got 'row'",
    ),
    "tails of counts": (
        lambda: BayesianMF(1, likelihood="poisson", tails="heavy").fit(np.abs(GAPS)),
        "tails must be 'normal' with likelihood='poisson', got 'heavy'",
    ),
    "weights, blend": (
        lambda: Blend().fit(GAPS, weights=ONES),
        "weights are not taken: the strengths are in X itself, with strengths='raw' in the",
    ),
    "one column, blend": (
        lambda: Blend().fit(sparse.csr_array(np.ones((3, 1)))),
        "X must have two or more rows and columns, got n_samples = 3 and n_features = 1: shares",
    ),
    "no models": (
        lambda: Blend(models={}).fit(sparse.csr_array(np.ones((3, 3)))),
        "estimators by name",
    ),
    "a list of models": (
        lambda: Blend(models=[EASE()]).fit(sparse.csr_array(np.ones((3, 3)))),
        r"models must be estimators by name, such as \{'ease': EASE\(\), 'gf-cf': SpectralFilter\(\)\},",
    ),
    "nothing to choose by": (
        lambda: Blend(models={"ease": EASE()})._chosen(observed(), empty(12, 6)),
        "validation must hold at least one row with a hidden entry, got none",
    ),
    "weights, mini": (
        lambda: MiniBatchNMF(1).fit(parts(), weights=np.ones(parts().shape)),
        r"MiniBatchNMF takes weights of rows \(sample_weight\), got weights of entries",
    ),
    "a cache of a collection": (
        lambda: collected(None, None, cache="kept"),
        "cache='kept' is for files and tables only, got a Dask collection",
    ),
    "weights, shape": (
        lambda: NMF(1).fit(parts(), weights=np.ones((2, 2))),
        r"weights must be a finite number >= 0 for each entry, of shape \(60, 20\), got shape \(2, 2\)",
    ),
    "weights, negative": (
        lambda: NMF(1).fit(parts(), weights=-np.ones(parts().shape)),
        "a finite number >= 0 for each entry",
    ),
    "a stream of documents": (
        lambda: documents.as_counts(eckart.read(once()), "LDA"),
        "X must be sparse documents for LDA, got a stream of dense rows",
    ),
    "a list of seeds": (lambda: LDA(2, seed_words=["a"], **SHORT).fit(counts()), "a dictionary"),
    "words of NaN": (
        lambda: eckart.document_completion(np.full((2, 20), np.nan), counts(), counts()),
        r"words must hold p\(w\|z\), topics x words, got NaN, infinity or numbers beyond the range",
    ),
    **{
        f"prior of {len(np.atleast_1d(prior))}, {np.min(prior)}": (
            lambda prior=prior: eckart.document_completion(
                np.full((2, 20), 0.05), counts(), counts(), prior=prior
            ),
            "a number >= 0, or 2 of them",
        )
        for prior in (-1.0, [1.0, 1.0, 1.0], [1.0, np.inf])
    },
    "no steps": (
        lambda: eckart.document_completion(np.full((2, 20), 0.05), counts(), counts(), steps=0),
        "steps must be an int >= 1, got 0",
    ),
    "no top words": (
        lambda: top_words(fitted("topics").fit_.factors, 0),
        "n must be an int >= 1, got 0",
    ),
    "top words of a row": (
        lambda: top_words(np.ones(3)),
        r"topics must be p\(w\|z\), topics x words, got shape \(3,\)",
    ),
    "negative topics": (
        lambda: eckart.align_topics(-np.ones((2, 3)), np.ones((2, 3))),
        "finite shares >= 0",
    ),
    "a row of topics": (
        lambda: eckart.align_topics(np.ones(3), np.ones((2, 3))),
        r"topics must be finite shares >= 0, topics x words, got shape \(3,\)",
    ),
    "no words of lists": (
        lambda: eckart.coherence([["a", "b"]], counts(), n=0),
        "n must be an int >= 1, got 0",
    ),
    "topics of numbers": (
        lambda: eckart.coherence([1, 2], counts()),
        "a list of words for each topic",
    ),
    "no topics": (lambda: eckart.coherence([], counts()), "a list of words for each topic"),
    "other topics, warm": (
        lambda: given(
            of=LDA(2, learning_method="cvb0", warm_start=True, **SHORT).fit(counts()),
            n_components=3,
        ).fit(counts()),
        "n_components must be 2, as in the fit that warm_start goes on from, got 3",
    ),
    "no documents": (
        lambda: LDA(2, learning_method="online").partial_fit(iter([])),
        "X must yield at least one block of rows, got an iterator that yields nothing",
    ),
    "noise that hides all": (
        lambda: Autoencoder(1, corruption="mask", noise=1.0, max_iter=1).fit(noise()[:, :4]),
        "a share below 1 of entries to hide",
    ),
}
ATTRIBUTES = {
    "setting a factor": (
        lambda: given(of=unseen("factor"), weights_=WEIGHTS),
        "found by fit and cannot be set",
    ),
    "loadings": (lambda: fitted("mixture").loadings_, "not of the type 'factor'"),
    "variances of a file": (
        lambda: loaded(IncrementalPCA(1).fit(noise()[:, :4])).var_,
        "var_ is absent",
    ),
    "path": (lambda: fitted("soft").path_taus_, "path_taus_ is kept with path=True only"),
    "bound": (
        lambda: (
            LatentDirichletAllocation(2, learning_method="online", random_state=0)
            .partial_fit(counts())
            .bound_
        ),
        "bound_ is absent",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", REFUSALS)
def test_is_refused_in_words(case):
    do, said = REFUSALS[case]
    with pytest.raises(InputError, match=said):
        do()


def test_nothing_is_chosen_by_half_a_fit(monkeypatch):
    from eckart.complete.items.blend import _whole
    from eckart.trace import StopReason

    model = unseen("ease")
    assert _whole(model) is model
    model.fit_.trace.reason = StopReason.INTERRUPTED
    with pytest.raises(KeyboardInterrupt):
        _whole(model)
    original = LDA.fit

    def fit(self, *args):
        original(self, *args).fit_.trace.reason = StopReason.INTERRUPTED
        return self

    monkeypatch.setattr(LDA, "fit", fit)
    with pytest.raises(KeyboardInterrupt):
        eckart.select_topics(LDA(2, **SHORT), counts(), (2,))


@pytest.mark.parametrize("case", ATTRIBUTES)
def test_an_attribute_that_is_absent_says_why(case):
    do, said = ATTRIBUTES[case]
    with pytest.raises(AttributeError, match=said):
        do()


def test_covariances_that_would_not_fit_into_memory_are_refused(monkeypatch):
    from eckart.explain.mixtures import gaussian

    model = fitted("factor")
    monkeypatch.setattr(gaussian, "LARGE", 2 * 3**2)
    assert model.covariances_.shape == (2, 3, 3)
    monkeypatch.setattr(gaussian, "LARGE", 2 * 3**2 - 1)
    with pytest.raises(AttributeError, match="2 x 3 x 3 numbers; use loadings_"):
        _ = model.covariances_


@pytest.mark.parametrize("told", [["yes", "no"], [True], (True, True), None])
def test_a_posterior_of_a_file_is_checked(told):
    from eckart.complete.bayes.posterior import Posterior

    arrays, values = fitted("chain").posterior_.to_state()
    assert Posterior.from_state(arrays, values).size == 2
    if told is not None:
        with pytest.raises(
            FileError, match=r"seen must be two booleans \(the links of rows and of columns\), got"
        ):
            Posterior.from_state(arrays, values | {"seen": told})


def test_bins_of_time_of_a_file_are_checked():
    from eckart.complete.bayes.posterior import TimeDraws

    good = {
        "time": np.zeros((2, 3, 2)),
        "time_ends": np.array([0.0, 1.0]),
        "time_own": np.ones(2),
        "time_bins": np.array([0, 2]),
        "time_rows": np.array([0, 1, 2]),
    }
    assert TimeDraws.from_state(good).own.shape == (2, 3)
    assert TimeDraws.from_state({}) is None
    bad = [
        {"time": np.zeros((2, 3))},
        {"time_ends": np.zeros(3)},
        {"time_ends": np.array([1.0, 0.0])},
        {"time_ends": np.array([1.0, 1.0])},
        {"time_own": np.ones((2, 1))},
        {"time_bins": np.array([0, 3])},
        {"time_bins": np.array([-1, 2])},
        {"time_bins": np.array([0.0, 2.0])},
        {"time_rows": np.array([0, 2, 1])},
        {"time_rows": np.array([1, 1, 2])},
        {"time_rows": np.array([0, 1, 3])},
        {"time_rows": np.zeros(0, int)},
        {"time_own": np.ones(3)},
    ]
    for change in bad:
        with pytest.raises(FileError, match="bins of time"):
            TimeDraws.from_state(good | change)
