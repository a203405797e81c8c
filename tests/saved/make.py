"""Fit one small model of every class that can be saved, and write its file and its answers. Run
once, at commit aa19f7a.

    python tests/saved/make.py            writes what is missing
    python tests/saved/make.py NAME ...   writes these, where missing

For each case NAME:

    NAME.safetensors    the model, as ``save`` wrote it at that commit
    NAME.answers.npz    ``in.*`` what it was asked about, ``out.*`` what it said (``answers.py``);
    ``computed`` and ``tolerances``: which answers are
                        sums, and how far off another CPU may be (``rounding.py``); plain arrays, no
                        pickle

``tests/test_saved_models.py`` asks again. A file that exists is never written over: the files are
evidence that models of that commit still load and predict the same, which a file of today is not.
Add a case for a new class; remove or rewrite none. All seeds are fixed; the seconds of the trace,
which the clock gives, are set to 0, so that a second run on the same machine writes the same bytes.
"""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from answers import ask, mixed_rows
from rounding import tolerances
from safetensors.numpy import load_file
from scipy import sparse

import eckart

HERE = Path(__file__).parent
Case = tuple[Any, dict[str, np.ndarray]]
CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    """List a function that fits a model and names its inputs."""
    CASES[make.__name__] = make
    return make


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# ---- linear models


def table(dtype: Any = np.float64, rows: int = 30, n: int = 6) -> np.ndarray:
    """Rows near three directions, with a mean."""
    r = rng(1)
    basis = np.linalg.qr(r.standard_normal((n, 3)))[0]
    return (
        r.standard_normal((rows, 3)) * [4.0, 2.5, 1.5] @ basis.T
        + 0.4 * r.standard_normal((rows, n))
        + 1.0
    ).astype(dtype)


def holes(x: np.ndarray, share: float, seed: int = 2, least: int = 3) -> np.ndarray:
    """Some entries missing; every row keeps at least ``least``."""
    r, out = rng(seed), x.astype(np.float64 if x.dtype.kind != "f" else x.dtype).copy()
    for row in out:
        row[r.permutation(len(row))[: min(round(share * len(row)), len(row) - least)]] = np.nan
    return out


def about(x: np.ndarray, k: int) -> dict[str, np.ndarray]:
    """New rows, rows with gaps, and codes."""
    new = x[:5] + 0.25 * rng(3).standard_normal((5, x.shape[1])).astype(x.dtype)
    return {
        "x": new,
        "gaps": holes(x[5:9], 0.34),
        "codes": rng(4).standard_normal((4, k)).astype(x.dtype),
    }


@case
def pca() -> Case:
    x = table()
    frame = pd.DataFrame(x, columns=["length", "width", "depth", "mass", "é 日", 'x "y"'])
    return eckart.PCA(3, random_state=0).fit(frame), about(x, 3)


@case
def pca_float32() -> Case:
    x = table(np.float32)
    return eckart.PCA(3, random_state=0).fit(x), about(x, 3)


@case
def pca_gaps() -> Case:
    x = table()
    return eckart.PCA(3, random_state=0).fit(holes(x, 0.2)), about(x, 3)


@case
def pca_whiten() -> Case:
    x = table()
    return eckart.PCA(3, whiten=True, random_state=0).fit(x), about(x, 3)


@case
def pca_varimax() -> Case:
    x = table()
    return eckart.PCA(3, rotation="varimax", random_state=0).fit(x), about(x, 3)


@case
def pca_promax() -> Case:
    x = table()
    return eckart.PCA(3, rotation="promax", random_state=0).fit(x), about(x, 3)


@case
def pca_not_centered() -> Case:
    x = table()
    return eckart.PCA(3, center=False, random_state=0).fit(sparse.csr_array(x)), about(x, 3)


@case
def pca_stream() -> Case:
    x = table()
    return eckart.PCA(3, random_state=0).partial_fit(x[:12]).partial_fit(x[12:]), about(x, 3)


@case
def pca_lanczos() -> Case:
    x = table(rows=40, n=12)
    return eckart.PCA(3, svd_solver="lanczos", random_state=0).fit(x), about(x, 3)


@case
def linear_autoencoder() -> Case:
    x = table()
    return eckart.LinearAutoencoder(3, random_state=0).fit(
        pd.DataFrame(x, columns=list("abcdef"))
    ), about(x, 3)


@case
def linear_autoencoder_batches() -> Case:
    x = table()
    return eckart.LinearAutoencoder(2, batch_size=8, tied=True, max_iter=40, random_state=0).fit(
        x
    ), about(x, 2)


# ---- networks

QUICK = {"max_iter": 12, "batch_size": 16, "learning_rate": 0.01, "n_threads": 1, "random_state": 0}


@case
def autoencoder() -> Case:
    x = table(rows=40)
    return eckart.Autoencoder(2, hidden=[8], **QUICK).fit(
        pd.DataFrame(x, columns=list("abcdef"))
    ), about(x, 2)


@case
def autoencoder_gaps() -> Case:
    x = table(rows=40)
    return eckart.Autoencoder(2, hidden=[8], activation="tanh", init="pca", **QUICK).fit(
        holes(x, 0.2)
    ), about(x, 2)


@case
def autoencoder_tied() -> Case:
    x = table(np.float32, rows=40).astype(np.float64)
    return eckart.Autoencoder(
        2, hidden=[5], tied=True, activation="gelu", optimizer="nesterov", **QUICK
    ).fit(x), about(x, 2)


def shares(rows: int, n: int) -> np.ndarray:
    """Numbers from 0 to 1."""
    x = table(rows=rows, n=n)
    return 1 / (1 + np.exp(-(x - 1.0)))


@case
def autoencoder_variational() -> Case:
    x = shares(40, 6)
    model = eckart.Autoencoder(
        2, hidden=[8], variational=0.05, loss="bernoulli", activation="sigmoid", **QUICK
    ).fit(x)
    inputs = about(x, 2)
    return model, inputs | {"x": np.clip(inputs["x"], 0.0, 1.0)}


@case
def conv_autoencoder() -> Case:
    x = table(rows=40, n=64)
    model = eckart.ConvAutoencoder(2, image=(8, 8), channels=(2,), hidden=[6], **QUICK).fit(x)
    return model, about(x, 2)


def two_classes() -> tuple[np.ndarray, np.ndarray]:
    x = table(rows=40)
    return x, np.where(x[:, 0] + x[:, 1] > np.median(x[:, 0] + x[:, 1]), 1, 0)


@case
def network_classifier() -> Case:
    x, y = two_classes()
    return eckart.NetworkClassifier(hidden=[8], **QUICK).fit(x, np.array(["no", "yes"])[y]), {
        "x": about(x, 1)["x"]
    }


@case
def network_classifier_pictures() -> Case:
    x = table(rows=40, n=64)
    y = np.digitize(x[:, 0], np.quantile(x[:, 0], [0.33, 0.67]))
    model = eckart.NetworkClassifier(image=(8, 8), channels=(2,), hidden=[6], **QUICK).fit(x, y)
    return model, {"x": about(x, 1)["x"]}


@case
def network_regressor() -> Case:
    x = table(rows=40)
    return eckart.NetworkRegressor(hidden=[8], **QUICK).fit(x, x[:, 0] * 3 + 5), {
        "x": about(x, 1)["x"]
    }


@case
def network_regressor_two_targets() -> Case:
    x = table(rows=40)
    y = np.column_stack([x[:, 0] * 3 + 5, np.abs(x[:, 1])])
    return eckart.NetworkRegressor(hidden=[8, 4], activation="tanh", **QUICK).fit(x, y), {
        "x": about(x, 1)["x"]
    }


# ---- completion


def low_rank(
    rows: int = 20, n: int = 12, k: int = 2, noise: float = 0.1, seed: int = 5
) -> np.ndarray:
    r = rng(seed)
    return (
        r.standard_normal((rows, k)) @ r.standard_normal((k, n)) * 2
        + 3.0
        + noise * r.standard_normal((rows, n))
    )


def asked(a: np.ndarray, columns: bool = True, cut: float = 0.34) -> dict[str, np.ndarray]:
    """Cells, and new rows and columns with gaps."""
    more = low_rank(*a.shape, seed=6)
    out = {
        "rows": np.array([0, 3, 7, 11, 16]),
        "columns": np.array([1, 4, 6, 9, 2]),
        "new": holes(more[:3], cut, 7, 7),
    }
    return out | ({"new columns": holes(more[:, :2].T, cut, 8, 7).T} if columns else {})


def ratings(rows: int = 20, n: int = 12) -> pd.DataFrame:
    """Triples of names and stars."""
    a = np.clip(np.round(holes(low_rank(rows, n), 0.3)), 1, 5)
    i, j = np.nonzero(~np.isnan(a))
    return pd.DataFrame(
        {"user": [f"user {u}" for u in i], "item": [f"item {v}" for v in j], "stars": a[i, j]}
    )


TRIPLES = {"rows": "user", "columns": "item", "values": "stars"}


@case
def als() -> Case:
    model = eckart.ALS(2, random_state=0).fit(ratings(), **TRIPLES)
    return model, asked(np.empty((20, 12)), columns=False)


@case
def als_implicit() -> Case:
    x = rng(9).poisson(0.9, (20, 12)).astype(np.float64)
    model = eckart.ALS(3, feedback="implicit", random_state=0).fit(sparse.csr_array(x))
    inputs = asked(np.empty((20, 12)), columns=False)
    new = rng(10).poisson(1.5, (3, 12)).astype(np.float64)
    new[new == 0] = np.nan
    return model, inputs | {"new": new}


def items(model: Any) -> Case:
    """An item model of counts, raw strengths so that no scores are tied."""
    x = rng(9).poisson(0.9, (20, 12)) * (1 + 0.1 * rng(12).random((20, 12)))
    new = rng(10).poisson(1.5, (3, 12)) * (1 + 0.1 * rng(13).random((3, 12)))
    new[new == 0] = np.nan
    return model.fit(sparse.csr_array(x)), asked(np.empty((20, 12)), columns=False) | {"new": new}


@case
def ease() -> Case:
    return items(eckart.EASE(2.0, strengths="raw"))


@case
def slim() -> Case:
    return items(eckart.SLIM(2.0, l1=0.1, strengths="raw"))


@case
def spectral_filter() -> Case:
    return items(eckart.SpectralFilter(3, strengths="raw", random_state=0))


@case
def blend() -> Case:
    """Two members, both with a share whatever hidden entries say of so small a table."""
    members = {
        "ease": eckart.EASE(2.0, strengths="raw"),
        "gf-cf": eckart.SpectralFilter(3, strengths="raw"),
    }
    model, ask = items(eckart.Blend(members, random_state=0))
    fitted = {name: member.fit(model.observed_) for name, member in model._fresh((20, 12)).items()}
    model._become(fitted, np.array([0.75, 0.25]), model.observed_, model.fit_.plan["told"], {})
    return model, ask


@case
def time_factors() -> Case:
    r = rng(14)
    a = np.outer(r.random(6) + 1, np.sin(2 * np.pi * np.arange(40) / 8)) + 0.1 * r.standard_normal(
        (6, 40)
    )
    a[r.random(a.shape) < 0.3] = np.nan
    x = eckart.observed(a)
    x = eckart.Observed(
        x.indptr,
        x.indices,
        x.data,
        40,
        np.array([f"s{i}" for i in range(6)], object),
        np.datetime64("2020-01-01") + np.arange(40),
    )
    model = eckart.TimeFactors(2, n_samples=6, burn_in=10, thin=1, period=8, random_state=0).fit(x)
    return model, {"rows": np.array([0, 3, 5]), "columns": np.array([2, 6, 32])}


@case
def mixed_table() -> Case:
    r = rng(14)
    z = r.standard_normal((60, 2))
    x = np.column_stack(
        [
            z[:, 0] + 0.4 * r.standard_normal(60),
            z[:, 1] - z[:, 0] + 0.4 * r.standard_normal(60),
            r.poisson(np.exp(1.5 * z[:, 0])),
        ]
    )
    town = np.array(["Bonn", "Kiel", "Ulm"])[
        np.argmax(np.column_stack([z, -z.sum(axis=1)]) + 0.3 * r.standard_normal((60, 3)), axis=1)
    ]
    grade = np.array(["low", "middle", "high"])[
        np.digitize(z[:, 1] + 0.3 * r.standard_normal(60), [-0.5, 0.5])
    ]
    texts = np.column_stack(
        [town, grade, np.where(z[:, 0] + 0.5 * r.standard_normal(60) > 0, "yes", "no")]
    )
    gone = r.random((60, 6)) < 0.15
    inputs = {"x": np.where(gone[:, :3], np.nan, x), "texts": np.where(gone[:, 3:], "", texts)}
    model = eckart.MixedTable(2, l2=1.0, losses={"b": "huber"}, random_state=0).fit(
        mixed_rows(inputs)
    )
    return model, {name: a[:8] for name, a in inputs.items()}


@case
def als_scaled() -> Case:
    a = holes(low_rank(), 0.3)
    model = eckart.ALS(2, normalise="both", scale=True, biases=False, l2=0.05, random_state=0).fit(
        a
    )
    return model, asked(a, columns=False)


@case
def als_bias_normaliser() -> Case:
    a = holes(low_rank(), 0.3)
    frame = pd.DataFrame(a, columns=[f"c{j}" for j in range(12)])
    return eckart.ALS(2, normalise="bias", biases=False, l2=0.05, random_state=0).fit(frame), asked(
        a, columns=False
    )


@case
def als_nonnegative() -> Case:
    a = np.abs(holes(low_rank(), 0.3))
    model = eckart.ALS(
        2, nonnegative=True, biases=False, normalise=None, l2=0.05, random_state=0
    ).fit(a)
    inputs = asked(a)
    return model, inputs | {
        "new": np.abs(inputs["new"]),
        "new columns": np.abs(inputs["new columns"]),
    }


@case
def als_float32() -> Case:
    a = holes(low_rank(), 0.3).astype(np.float32)
    inputs = asked(a)
    model = eckart.ALS(2, l2=0.1, random_state=0).fit(a)
    return model, {
        name: v.astype(np.float32) if v.dtype.kind == "f" else v for name, v in inputs.items()
    }


@case
def als_integer_and_date_ids() -> Case:
    a = holes(low_rank(), 0.3)
    days = np.datetime64("2020-01-01") + np.arange(12)
    x = eckart.observed(a)
    x = eckart.Observed(x.indptr, x.indices, x.data, x.n_columns, 100 + 7 * np.arange(20), days)
    return eckart.ALS(2, l2=0.05, random_state=0).fit(x), asked(a, columns=False)


@case
def bayesian_mf() -> Case:
    model = eckart.BayesianMF(2, n_samples=6, burn_in=20, thin=2, random_state=0).fit(
        ratings(), **TRIPLES
    )
    return model, asked(np.empty((20, 12)), columns=False)


@case
def bayesian_mf_noise_and_features() -> Case:
    a = holes(low_rank(), 0.3)
    options = {"noise": "both", "implicit_features": True}
    model = eckart.BayesianMF(2, n_samples=4, burn_in=20, thin=2, random_state=0, **options).fit(a)
    return model, asked(a, columns=False)


@case
def svp() -> Case:
    a = holes(low_rank(), 0.3)
    return eckart.SVP(2, normalise="global", random_state=0).fit(a), asked(a)


@case
def svt() -> Case:
    a = holes(low_rank(), 0.3)
    return eckart.SVT(3, normalise="row", random_state=0).fit(a), asked(a)


@case
def soft_impute() -> Case:
    model = eckart.SoftImpute(3, tau=1.0, normalise="column", random_state=0).fit(
        ratings(), **TRIPLES
    )
    return model, asked(np.empty((20, 12)), columns=False)


@case
def soft_impute_path() -> Case:
    a = holes(low_rank(), 0.3)
    return eckart.SoftImpute(2, path=4, debias=True, random_state=0).fit(a), asked(a)


@case
def exact_recovery() -> Case:
    a = low_rank(noise=0.0) - 3.0
    return eckart.ExactRecovery(2, random_state=0).fit(holes(a, 0.3)), asked(a)


# ---- mixtures


def clouds() -> np.ndarray:
    r = rng(11)
    return np.concatenate(
        [r.standard_normal((20, 3)) @ np.diag([1.0, 0.6, 0.8]), 4.0 + r.standard_normal((16, 3))]
    )


def points() -> dict[str, np.ndarray]:
    new = clouds()[::6] + 0.2 * rng(12).standard_normal((6, 3))
    return {"x": new, "gaps": holes(new, 0.34, 13, 1)}


def gaussian(kind: str, **options: Any) -> Callable[[], Case]:
    def make() -> Case:
        data = options.pop("data", clouds)()
        model = eckart.GaussianMixture(2, covariance_type=kind, random_state=0, **options)
        return model.fit(data), points()

    return make


for _kind in ("full", "tied", "diag", "spherical", "unit"):
    CASES[f"gaussian_mixture_{_kind}"] = gaussian(_kind)
CASES["gaussian_mixture_factor"] = gaussian("factor", n_factors=1)
CASES["gaussian_mixture_gaps"] = gaussian("full", data=lambda: holes(clouds(), 0.34, 14, 2))


@case
def gaussian_mixture_float32() -> Case:
    x = pd.DataFrame(clouds().astype(np.float32), columns=list("abc"))
    return eckart.GaussianMixture(2, random_state=0).fit(x), {
        name: a.astype(np.float32) for name, a in points().items()
    }


def of_family(kind: str) -> Callable[[], Case]:
    def make() -> Case:
        return eckart.Mixture(2, family=kind, random_state=0).fit(clouds()), {"x": points()["x"]}

    return make


for _kind in ("", " tied", " diag", " spherical", " unit"):
    CASES[f"mixture_gaussian{_kind.replace(' ', '_')}"] = of_family("gaussian" + _kind)


@case
def mixture_bernoulli() -> Case:
    r = rng(15)
    x = np.concatenate(
        [
            r.random((20, 5)) < [0.9, 0.8, 0.2, 0.1, 0.5],
            r.random((16, 5)) < [0.1, 0.2, 0.7, 0.9, 0.4],
        ]
    )
    x = x.astype(np.float64)
    return eckart.Mixture(2, family="bernoulli", random_state=0).fit(x), {"x": x[::5]}


@case
def mixture_multinomial() -> Case:
    r = rng(16)
    x = np.concatenate(
        [r.multinomial(12, p, 18) for p in ([0.5, 0.3, 0.1, 0.1], [0.1, 0.1, 0.4, 0.4])]
    ).astype(np.float64)
    return eckart.Mixture(2, family="multinomial", random_state=0).fit(x), {"x": x[::5]}


# ---- topics and parts


def documents() -> np.ndarray:
    r = rng(17)
    topics = r.dirichlet(np.full(14, 0.25), 3)
    return np.stack(
        [r.multinomial(30, t @ topics) for t in r.dirichlet(np.full(3, 0.3), 30)]
    ).astype(np.float64)


def words_of(x: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(x, columns=[f"word{j}" for j in range(x.shape[1])])


@case
def plsa() -> Case:
    x = documents()
    return eckart.PLSA(3, random_state=0).fit(words_of(x)), {"x": x[:6]}


@case
def lda_gibbs() -> Case:
    x = documents()
    return eckart.LDA(3, learning_method="gibbs", burn_in=20, n_samples=8, random_state=0).fit(
        words_of(x)
    ), {"x": x[:6]}


@case
def lda_cvb0() -> Case:
    x = documents()
    return eckart.LDA(3, learning_method="cvb0", random_state=0).fit(x), {"x": x[:6]}


@case
def lda_variational() -> Case:
    x = documents()
    model = eckart.LDA(
        3, learning_method="variational", doc_topic_prior=0.2, topic_word_prior=0.1, random_state=0
    )
    return model.fit(x), {"x": x[:6]}


@case
def lda_online() -> Case:
    x = documents()
    return eckart.LDA(3, learning_method="online", batch_size=10, random_state=0).fit(x), {
        "x": x[:6]
    }


@case
def lda_seed_words() -> Case:
    x = documents()
    model = eckart.LDA(
        3, learning_method="cvb0", seed_words={0: ["word1", "word3"], 2: ["word5"]}, random_state=0
    )
    return model.fit(words_of(x)), {"x": x[:6]}


def nonnegative() -> np.ndarray:
    r = rng(18)
    return r.gamma(0.6, 1.0, (24, 3)) @ r.gamma(0.6, 1.0, (3, 9)) + 0.02 * r.random((24, 9))


def coded(x: np.ndarray) -> dict[str, np.ndarray]:
    return {"x": x[:5], "codes": rng(19).random((4, 3))}


@case
def nmf() -> Case:
    x = nonnegative()
    return eckart.NMF(3, random_state=0).fit(pd.DataFrame(x, columns=list("abcdefghi"))), coded(x)


@case
def nmf_kullback_leibler() -> Case:
    x = nonnegative()
    return eckart.NMF(3, beta_loss="kullback-leibler", random_state=0).fit(x), coded(x)


@case
def nmf_gaps() -> Case:
    x = nonnegative()
    return eckart.NMF(3, alpha_W=1e-3, l1_ratio=0.5, random_state=0).fit(holes(x, 0.2)), coded(x)


@case
def nmf_stream() -> Case:
    x = nonnegative()
    return eckart.NMF(3, random_state=0).partial_fit(x[:12]).partial_fit(x[12:]), coded(x)


@case
def mini_batch_nmf() -> Case:
    x = nonnegative()
    return eckart.MiniBatchNMF(3, batch_size=10, max_iter=20, random_state=0).fit(x), coded(x)


@case
def incremental_pca() -> Case:
    x = table()
    return eckart.IncrementalPCA(3, batch_size=10).fit(x[:20]).partial_fit(x[20:]), about(x, 3)


@case
def truncated_svd() -> Case:
    x = table()
    return eckart.TruncatedSVD(3, random_state=0).fit(x), {
        "x": x[:5],
        "codes": rng(19).random((4, 3)),
    }


@case
def robust_pca() -> Case:
    x = table()
    x[3, 2] += 40.0
    return eckart.RobustPCA(3).fit(x), {"codes": rng(19).random((4, 3))}


@case
def latent_dirichlet_allocation() -> Case:
    x = documents()
    return eckart.LatentDirichletAllocation(3, random_state=0).fit(x), {"x": x[:6]}


# ---- words and items


def sentences() -> list[str]:
    """Texts of two themes over 24 words."""
    r, names = (
        rng(20),
        np.array(
            [f"{a}{b}" for a in ("ka", "lo", "mi", "nu", "pe", "ri") for b in ("n", "t", "s", "x")]
        ),
    )
    themes = r.dirichlet(np.full(24, 0.5), 3)
    return [" ".join(r.choice(names, 12, p=themes[i % 3])) for i in range(120)]


def texts() -> dict[str, np.ndarray]:
    return {
        "texts": np.array([*sentences()[:4], "Kan lot unknown words", "nothing known"]),
        "asked": np.array([0, 2, 5, 3, 7]),
    }


SMALL = {"min_count": 2, "window": 3, "random_state": 0}


@case
def pmi() -> Case:
    return eckart.PMI(4, **SMALL).fit(sentences()), texts()


@case
def pmi_context() -> Case:
    return eckart.PMI(4, kind="pmi", exponent=0.75, add_context=True, **SMALL).fit(
        sentences()
    ), texts()


@case
def glove() -> Case:
    return eckart.GloVe(4, **SMALL).fit(sentences()), texts()


@case
def glove_adagrad() -> Case:
    return eckart.GloVe(4, solver="adagrad", add_context=False, n_threads=1, **SMALL).fit(
        sentences()
    ), texts()


@case
def skipgram() -> Case:
    return eckart.SkipGram(4, deterministic=True, sample=None, **SMALL).fit(sentences()), texts()


@case
def skipgram_softmax() -> Case:
    model = eckart.SkipGram(
        4, loss="softmax", bias=True, add_context=True, sample=None, max_iter=60, **SMALL
    )
    return model.fit(sentences()), texts()


@case
def skipgram_items() -> Case:
    r = rng(21)
    kinds = r.dirichlet(np.full(20, 0.4), 4)
    baskets = np.stack([r.choice(20, 6, p=kinds[i % 4]) for i in range(150)]) * 3 + 100
    model = eckart.SkipGram(4, deterministic=True, sample=None, **SMALL).fit(baskets.tolist())
    return model, {"texts": baskets[:5], "asked": np.array([0, 2, 5, 3, 7])}


# ---- writing


def steady(model: Any, inputs: dict[str, np.ndarray], answers: dict[str, np.ndarray]) -> None:
    """Refuse a case whose orders and labels hang on the last bits: neighbours in a ranking must be
    further apart than rounding."""
    single = any(
        a.dtype == np.float32 for name, a in answers.items() if name in ("components_", "transform")
    )
    least = 1e-4 if single else 1e-9
    rankings = []
    if hasattr(model, "recommend"):
        n, rows = model.n_features_in_, model.row_ids.names(inputs["rows"])
        columns = model.column_ids.names(inputs["columns"])
        rankings += [
            model.recommend(rows, n).scores,
            model.recommend(rows, n, exclude_seen=False, candidates=columns).scores,
        ]
        rankings += [
            model.similar(rows=rows, n=4).scores,
            model.similar(columns=columns, n=4).scores,
        ]
        rankings += [answers["recommend new rows scores"]]
        clip = model.fit_.plan.get("clip")
        assert clip is None or np.ptp(clip) > 0
    if hasattr(model, "vectors_"):
        rankings += [model.vectors_.neighbours(model.vectors_.words[inputs["asked"]], 4).scores]
    if hasattr(model, "top_words"):
        p = -np.sort(-model.topic_word_.astype(np.float64), axis=1)
        rankings += [p[:, :4]]
    if "predict_proba" in answers:
        rankings += [-np.sort(-answers["predict_proba"].astype(np.float64), axis=1)]
    for scores in rankings:
        with np.errstate(invalid="ignore"):
            gaps = -np.diff(scores.astype(np.float64), axis=1)
        gaps = gaps[np.isfinite(gaps)]
        assert not len(gaps) or gaps.min() > least * max(
            1.0, np.abs(scores[np.isfinite(scores)]).max()
        ), gaps.min()


def write_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """np.savez_compressed without the time of day."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, a in arrays.items():
            data = io.BytesIO()
            np.lib.format.write_array(data, np.asarray(a), allow_pickle=False)
            out.writestr(zipfile.ZipInfo(f"{name}.npy"), data.getvalue(), zipfile.ZIP_DEFLATED)


def write(name: str, folder: Path) -> None:
    """Fit, save, ask, and write both files."""
    model, inputs = CASES[name]()
    model.fit_.trace.seconds[:] = [0.0] * len(model.fit_.trace.seconds)
    path = folder / f"{name}.safetensors"
    model.save(path)
    answers = ask(eckart.load(path), inputs)
    fitted = ask(model, inputs)
    for key, a in answers.items():
        assert a.tobytes() == fitted[key].tobytes(), (
            f"{name}: {key} of the loaded model is not that of the fitted one"
        )
    steady(model, inputs, answers)
    allowed = tolerances(model, inputs, answers, load_file(path))
    arrays = {f"in.{key}": a for key, a in inputs.items()} | {
        f"out.{key}": a for key, a in answers.items()
    }
    arrays |= {
        "computed": np.array(list(allowed), dtype=np.str_),
        "tolerances": np.array(list(allowed.values())),
    }
    write_npz(folder / f"{name}.answers.npz", arrays)


def main(names: list[str], folder: Path = HERE) -> None:
    for name in names or CASES:
        if (folder / f"{name}.answers.npz").exists():
            print(f"{name}: is there, left as it is")
            continue
        write(name, folder)
        print(f"{name}: written")


if __name__ == "__main__":
    main(sys.argv[1:])
