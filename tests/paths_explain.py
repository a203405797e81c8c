"""Runs of mixtures, topics and parts that are written down: starts, families, priors, divergences,
streams, selections."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

import eckart
from eckart import (
    ALS,
    LDA,
    NMF,
    GaussianMixture,
    LatentDirichletAllocation,
    MiniBatchNMF,
    Mixture,
)
from eckart.explain.parts.consensus import _losses, select_rank
from eckart.explain.topics.judge import top_words
from paths_base import case, near, several
from resumable_fits import counts, groups, holes, parts


@case
def models_that_start_warm() -> Any:
    als = ALS(2, warm_start=True, max_iter=3, tol=0.0, random_state=0).fit(near())
    mixture = GaussianMixture(2, warm_start=True, max_iter=3, random_state=0).fit(groups())
    topics = LDA(2, learning_method="variational", warm_start=True, max_iter=3, random_state=0).fit(
        counts()
    )
    words_ = LDA(
        3,
        learning_method="cvb0",
        seed_words={0: [1, 3], 2: [5]},
        seed_weight=20.0,
        max_iter=5,
        random_state=0,
    ).fit(counts())
    models = [als.fit(near()), mixture.fit(groups()), topics.fit(counts()), words_]
    return [[m.fit_.trace.values, m.fit_.plan, m.fit_.factors.to_state()[0]] for m in models]


def with_gaps() -> np.ndarray:
    x = groups() * 1.03
    x[np.random.default_rng(3).random(x.shape) < 0.2] = np.nan
    return x[~np.isnan(x).all(axis=1)]


@case
def mixtures_by_options() -> Any:
    x = groups()

    def ask(m):
        return [
            m.score(x),
            m.bic(x),
            m.aic(x),
            m.predict_proba(x[:3]),
            m.sample(4),
            m.outlier_score(x[:3], quantile=True),
            m.certify(x).to_dict()["facts"],
        ]

    start = {"weights_init": [0.5, 0.3, 0.2], "means_init": x[[0, 50, 100]]}
    return several(
        given=(
            GaussianMixture(3, **start, precisions_init=np.tile(np.eye(3), (3, 1, 1)), max_iter=8),
            x,
            ask,
        ),
        given_tied=(
            GaussianMixture(
                3, covariance_type="tied", **start, precisions_init=2 * np.eye(3), max_iter=8
            ),
            x,
        ),
        given_diag=(
            GaussianMixture(
                3, covariance_type="diag", **start, precisions_init=np.full((3, 3), 2.0), max_iter=8
            ),
            x,
        ),
        given_spherical=(
            GaussianMixture(
                3, covariance_type="spherical", **start, precisions_init=[1.0, 2.0, 0.5], max_iter=8
            ),
            x,
        ),
        random=(GaussianMixture(3, init_params="random", max_iter=12), x),
        kmeans=(GaussianMixture(3, init_params="kmeans", max_iter=6), x),
        from_data=(GaussianMixture(3, init_params="random_from_data", max_iter=10), x),
        crowded=(GaussianMixture(9, max_iter=10), x[:40]),
        floor=(GaussianMixture(2, reg_covar=0.5, max_iter=10), x),
        factor=(GaussianMixture(2, covariance_type="factor", n_factors=1, max_iter=10), x, ask),
        auto=(GaussianMixture("auto", covariance_type="diag"), x[:90], lambda m: m.fit_.plan),
        gaps=(GaussianMixture(2, max_iter=8), with_gaps(), lambda m: m.impute(with_gaps()[:5])),
        gaps_diag=(
            GaussianMixture(2, covariance_type="diag", max_iter=8),
            with_gaps(),
            lambda m: m.predict_proba(with_gaps()[:5]),
        ),
    )


@case
def mixtures_in_pieces() -> Any:
    rng = np.random.default_rng(15)
    x = np.concatenate([rng.standard_normal((1300, 2)) + c for c in (0.0, 4.0)])[
        rng.permutation(2600)
    ]
    model = GaussianMixture(2, random_state=0)
    out = []
    for piece in np.array_split(x, 3):
        model.partial_fit(piece)
        out.append(
            [
                model.weights_,
                model.means_,
                model.covariances_,
                model.certificate_.to_dict()["facts"],
                model.certificate_.to_dict()["checks"],
                model.fit_.trace.values,
            ]
        )
    made = GaussianMixture(2, covariance_type="diag")
    made.weights_, made.means_, made.precisions_cholesky_ = (
        np.array([0.25, 0.75005]),
        np.array([[0.0, 0.0], [3.0, 1.0]]),
        np.array([[1.0, 2.0], [0.5, 1.0]]),
    )
    full = GaussianMixture(2)
    full.weights_, full.means_, full.precisions_ = (
        np.array([0.25, 0.75]),
        np.array([[0.0, 0.0], [3.0, 1.0]]),
        np.array([[[2.0, 0.5], [0.5, 1.0]], [[1.0, 0.0], [0.0, 4.0]]]),
    )
    return [
        out,
        [[m.covariances_, m.score_samples(x[:5]), m.precisions_cholesky_] for m in (made, full)],
    ]


class Exponential:
    """A family of a user: independent exponential columns."""

    name = "exponential"

    def log_prob(self, x: np.ndarray, parameters: Any) -> np.ndarray:
        rate = parameters["rate"]
        return np.log(rate).sum(axis=1) - x @ rate.T

    def weighted_fit(self, x: np.ndarray, q: np.ndarray) -> Any:
        return {"rate": q.sum(axis=0)[:, None] / (q.T @ x)}


@case
def families() -> Any:
    x, signs_ = groups(), (counts()[:, :6] > 0) * 1.0
    missing = np.where(np.random.default_rng(4).random(signs_.shape) < 0.2, np.nan, signs_)

    def ask(x):
        return lambda m: [
            m.score(x),
            m.bic(x),
            m.predict_proba(x[:4]),
            m.sample(3),
            m.certify(x).to_dict()["facts"],
        ]

    positive = np.abs(x) + 0.1
    own = Mixture(2, family=Exponential(), max_iter=10, random_state=0).fit(positive)
    return {
        "own": [
            own.fit_.trace.values,
            own.score(positive),
            own.predict_proba(positive[:4]),
            own.certify(positive).to_dict(),
        ]
    } | several(
        bernoulli=(Mixture(3, family="bernoulli", max_iter=10), signs_, ask(signs_)),
        gaps=(
            Mixture(2, family="bernoulli", max_iter=10),
            missing,
            lambda m: [m.impute(missing[:5]), m.score(missing)],
        ),
        multinomial=(Mixture(3, family="multinomial", max_iter=10), counts(), ask(counts())),
        full=(Mixture(2, family="gaussian", max_iter=8), x, ask(x)),
        tied=(Mixture(2, family="gaussian tied", max_iter=8), x, ask(x)),
        diag_gaps=(
            Mixture(2, family="gaussian diag", max_iter=8),
            with_gaps(),
            lambda m: [m.impute(with_gaps()[:5]), m.score(with_gaps())],
        ),
        crowded=(Mixture(12, family="bernoulli", max_iter=15), signs_[:25]),
    )


@case
def families_alone() -> Any:
    from eckart.explain.mixtures.families_gaussian import Gaussian

    x, out = groups()[:12], []
    q = np.random.default_rng(2).dirichlet([1.0, 1.0], 12)
    for kind in ("full", "tied", "diag", "spherical", "unit"):
        family = Gaussian(kind)
        theta = family.weighted_fit(x, q)
        data = with_gaps()[:6] if family.gaps else x
        out.append(
            [
                theta,
                family.log_prob(x, theta),
                family.log_prob(data, theta),
                family.n_parameters(2, 3),
                family.draw(theta, np.array([0, 1, 1]), np.random.default_rng(0)),
            ]
        )
    return out


@case
def mixtures_selected() -> Any:
    x = groups()
    out = [
        eckart.select_mixture(
            x, (1, 2, 3), ("spherical", "full"), criterion=c, random_state=0, max_iter=15
        )
        for c in ("bic", "held_out")
    ]
    out.append(
        eckart.select_mixture(
            x,
            (2, 3),
            ("diag",),
            criterion="aic",
            sample_weight=np.arange(120) % 3 + 1.0,
            random_state=0,
            max_iter=15,
        )
    )
    return [[s.table, s.choices, s.notes, s.agree, str(s), s.model.means_] for s in out]


@case
def topics_by_options() -> Any:
    x = counts()

    def ask(m):
        return [
            m.transform(x[:4]),
            m.transform(x[:4], normalize=False),
            m.score(x),
            m.perplexity(x),
            m.top_words(3),
            m.certify(x).to_dict()["facts"],
        ]

    quick = {"max_iter": 6}
    return several(
        priors=(
            LDA(
                3,
                learning_method="variational",
                doc_topic_prior="auto",
                topic_word_prior="auto",
                **quick,
            ),
            x,
            ask,
        ),
        cvb0=(LDA(3, learning_method="cvb0", doc_topic_prior="auto", **quick), x, ask),
        gibbs=(
            LDA(3, learning_method="gibbs", doc_topic_prior="auto", burn_in=6, n_samples=4),
            x,
            ask,
        ),
        online=(
            LDA(3, learning_method="online", doc_topic_prior="auto", batch_size=20, **quick),
            x,
            ask,
        ),
        sparse=(
            LDA(
                2,
                learning_method="variational",
                doc_topic_prior=0.2,
                topic_word_prior=0.05,
                **quick,
            ),
            sparse.csr_array(x),
        ),
        sklearn=(
            LatentDirichletAllocation(3, max_iter=4, tol=1e-2, evaluate_every=2),
            x,
            lambda m: [m.bound_, m.score(x), m.perplexity(x, sub_sampling=True), m.perplexity(x)],
        ),
        sklearn_online=(
            LatentDirichletAllocation(
                3, learning_method="online", max_iter=3, batch_size=16, total_samples=500.0
            ),
            x,
            lambda m: [m.bound_, m.score(x), m.perplexity(x, sub_sampling=True)],
        ),
    )


@case
def topics_judged() -> Any:
    x = counts()
    model = LDA(3, learning_method="cvb0", max_iter=8, random_state=0).fit(x)
    other = LDA(3, learning_method="cvb0", max_iter=8, random_state=1).fit(x)
    seen, hidden = eckart.split_tokens(x, 0.5, random_state=0)
    out = [
        seen.to_scipy().sum(),
        hidden.to_scipy().sum(),
        eckart.coherence(model, x, 4),
        eckart.coherence([[0, 1, 2], [3, 4, 5]], x, 3),
        eckart.topic_diversity(model, 4),
    ]
    out += [
        eckart.align_topics(model, other),
        top_words(model.fit_.factors, 3),
        top_words(model.fit_.factors, 3, "lift"),
    ]
    done = eckart.document_completion(model.topic_word_, seen, hidden)
    chosen = eckart.select_topics(
        LDA(learning_method="cvb0", max_iter=5, random_state=0), x, (2, 3), n=4
    )
    return [*out, done, done.perplexity, chosen]


@case
def topics_in_pieces() -> Any:
    x = counts()
    model = LDA(3, learning_method="online", random_state=0)
    sk = LatentDirichletAllocation(3, learning_method="online", total_samples=60.0, random_state=0)
    for piece in np.array_split(x, 3):
        model.partial_fit(piece)
        sk.partial_fit(piece)
    return [
        model.components_,
        model.perplexity(x),
        sk.components_,
        sk.perplexity(x),
        sk.n_batch_iter_,
        model.fit_.trace.values,
    ]


@case
def parts_by_options() -> Any:
    x = parts(30, 12)

    def ask(m):
        return [
            m.transform(x[:4]),
            m.inverse_transform(m.transform(x[:4])),
            m.reconstruction_err_,
            m.certify(x).to_dict()["facts"],
        ]

    quick = {"max_iter": 8, "tol": 0.0}
    shapes = {
        f"{init}": (NMF(3, init=init, solver="mu", max_iter=4, tol=0.0), x)
        for init in ("random", "nndsvd", "nndsvda", "nndsvdar")
    }
    return several(
        l1=(NMF(3, alpha_W=0.01, alpha_H=0.02, l1_ratio=0.7, **quick), x, ask),
        l2=(NMF(3, alpha_W=0.05, alpha_H=0.0, **quick), x, ask),
        kl=(NMF(3, beta_loss="kl", **quick), x, ask),
        saito=(
            NMF(3, beta_loss="itakura-saito", **quick),
            x + 0.01,
            lambda m: m.transform(x[:3] + 0.01),
        ),
        half=(NMF(3, beta_loss=1.5, solver="mu", **quick), x, ask),
        low=(NMF(2, beta_loss=0.5, solver="mu", **quick), x + 0.01),
        kl_l1=(NMF(3, beta_loss="kl", alpha_W=0.01, l1_ratio=1.0, **quick), x),
        kl_l2=(NMF(3, beta_loss="kl", alpha_W=0.01, l1_ratio=0.0, solver="mu", **quick), x),
        sparse=(
            NMF(3, **quick),
            sparse.csr_array(np.where(x > 0.3, x, 0.0)),
            lambda m: m.transform(x[:3]),
        ),
        gaps=(
            NMF(3, **quick),
            holes(),
            lambda m: [m.transform(holes()[:3]), m.certify(holes()).to_dict()["facts"]],
        ),
        gaps_kl=(NMF(2, beta_loss="kl", **quick), holes()),
        stop=(NMF(3, tol=1e-2, max_iter=100), x),
        starts=(NMF(3, n_init=3, **quick), x),
        als=(NMF(3, solver="als", **quick), x),
        batches=(MiniBatchNMF(3, batch_size=7, max_iter=6), x, ask),
        batches_kl=(
            MiniBatchNMF(2, batch_size=10, beta_loss="kl", max_iter=5, alpha_W=0.01),
            x,
            ask,
        ),
        forgetful=(
            MiniBatchNMF(
                2,
                batch_size=10,
                forget_factor=0.5,
                fresh_restarts=True,
                max_no_improvement=2,
                max_iter=20,
            ),
            x,
            ask,
        ),
        **shapes,
    )


@case
def parts_in_pieces() -> Any:
    x = parts(30, 12)
    given = NMF(2, init="custom", max_iter=4, tol=0.0)
    w = given.fit_transform(
        x,
        W=np.full((30, 2), 0.5) + 0.01 * np.arange(60).reshape(30, 2),
        H=np.full((2, 12), 0.3) + 0.01 * np.arange(24).reshape(2, 12),
    )
    stream, batches = NMF(2, random_state=0), MiniBatchNMF(2, random_state=0)
    for piece in np.array_split(x, 3):
        stream.partial_fit(piece)
        batches.partial_fit(piece)
    ranks = select_rank(x, (1, 2, 3), n_init=3, max_iter=15, random_state=0)
    return [
        w,
        given.components_,
        stream.components_,
        batches.components_,
        stream.fit_.trace.values,
        ranks.table,
        ranks.choices,
        ranks.notes,
    ]


@case
def parts_at_their_edges() -> Any:
    x = parts(30, 12)
    return several(
        multiplied=(NMF(2, solver="mu", max_iter=5, tol=0.0), holes()),
        begun=(NMF(2, init="nndsvda", max_iter=5, tol=0.0), holes()),
        still=(MiniBatchNMF(2, batch_size=10, tol=0.05, max_no_improvement=None, max_iter=30), x),
        idle=(MiniBatchNMF(2, batch_size=10, tol=0.01, max_no_improvement=3, max_iter=40), x),
        tight=(NMF(2, tol=1e-4), x),
        inverted=(NMF(2, solver="als", alpha_W=0.01, alpha_H=0.02, l1_ratio=0.3, max_iter=6), x),
        flat=(NMF(2, max_iter=5), np.ones((6, 5))),
        one=(NMF(1, beta_loss="kl", max_iter=5, tol=0.0), x),
    )


@case
def topics_that_learn_priors() -> Any:
    """Priors are learned at some steps, and not in the last few."""
    x = counts()
    return several(
        late=(LDA(2, learning_method="cvb0", max_iter=18, tol=0.0), x),
        early=(LDA(2, learning_method="cvb0", max_iter=30, tol=0.0), x),
        held=(
            LDA(
                2,
                learning_method="cvb0",
                max_iter=21,
                doc_topic_prior=0.3,
                topic_word_prior="auto",
                tol=0.0,
            ),
            x,
        ),
        climbed=(LDA(2, learning_method="variational", max_iter=30, tol=0.0), x),
    )


@case
def components_revived() -> Any:
    """A component that no row belongs to is given the rows that are explained worst."""
    from eckart.engines import engine_named
    from eckart.explain.mixtures.families import family_named
    from eckart.explain.mixtures.mixture import FamilyStatistics, Theta, _Reviver, prepared
    from eckart.explain.mixtures.starts import Sample
    from eckart.trace import Trace

    x, out = groups(), []
    far = np.vstack([x[0], x[50], np.full((2, 3), 1e4)])
    kinds = ("full", "tied", "diag", "spherical", "unit")
    fits = {
        kind: (GaussianMixture(4, covariance_type=kind, means_init=far, max_iter=8), x)
        for kind in kinds
    }
    engine = engine_named("cpu", 1)
    placed, rng = engine.put(eckart.Dense(x)), np.random.default_rng(0)
    scale, problem = prepared(placed, family_named("gaussian diag"), None, engine)
    revive = _Reviver(Sample.of(placed, scale, None, rng, 60, engine), problem, scale)
    theta = Theta(np.array([0.6, 0.4, 0.0]), {"means": far[:3], "spread": np.ones((3, 3))})
    trace = Trace("none", [1.0, 2.0], [0.0, 0.0])
    for emptied in ([70.0, 50.0, 0.0], [120.0, 0.0, 0.0], [60.0, 40.0, 20.0]):
        after = revive(theta, FamilyStatistics(120.0, 0.0, np.array(emptied), None), trace)
        out.append([None if after is None else [after.weights, after.parameters], revive.events])
    return several(**fits) | {"family": out}


@case
def losses_of_parts() -> Any:
    a, s = np.array([0.0, 0.5, 1.0, 2.0]), np.array([0.2, 0.4, 1.5, 2.0])
    return [_losses(a, s, beta) for beta in (2, 1, 0.5, 1.5, 3)] + [_losses(a[1:], s[1:], 0)]
