"""Runs of completion that are written down: losses, likelihoods, attributes, times, lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

import eckart
from eckart import (
    ALS,
    EASE,
    SLIM,
    SVP,
    SVT,
    BayesianMF,
    ExactRecovery,
    SoftImpute,
    SpectralFilter,
)
from eckart.complete.nuclear.operators import norms, partial_svd, rank_one
from eckart.complete.nuclear.recovery import incoherence
from eckart.report.held_out import judge
from paths_base import case, exact, fitted, near, several
from resumable_fits import counts, holes, noise


def grades() -> np.ndarray:
    rng = np.random.default_rng(11)
    s = rng.standard_normal((24, 2)) @ rng.standard_normal((2, 14))
    return np.where(
        rng.random(s.shape) < 0.6,
        1.0 + np.searchsorted([-1.0, 0.0, 1.2], s + 0.5 * rng.standard_normal(s.shape)),
        np.nan,
    )


def answers() -> np.ndarray:
    x = grades()
    return np.where(np.isnan(x), np.nan, (x > 2) * 1.0)


def few() -> np.ndarray:
    """Counts with gaps."""
    rng = np.random.default_rng(12)
    s = 0.5 * rng.standard_normal((24, 2)) @ rng.standard_normal((2, 14))
    return np.where(rng.random(s.shape) < 0.6, rng.poisson(np.exp(s)), np.nan)


CELLS = (np.array([0, 3, 7]), np.array([1, 4, 6]))


@case
def soft_impute_under_losses() -> Any:
    quick = {"tol": 1e-3, "max_iter": 60}
    return several(
        logistic=(
            SoftImpute(loss="logistic", tau=1.0, **quick),
            answers(),
            lambda m: m.predict_proba(*CELLS),
        ),
        ordered=(
            SoftImpute(loss="ordered", tau=1.0, **quick),
            grades(),
            lambda m: m.transform(grades()[:3]),
        ),
        huber=(SoftImpute(loss="huber", tau=0.5, normalise="global", **quick), near()),
        free=(SoftImpute(loss="huber", tau=0.5, normalise=None, **quick), near()),
    )


@case
def soft_impute_chooses_tau() -> Any:
    return several(
        squares=(SoftImpute(random_state=0), near(), lambda m: m.tau_),
        logistic=(SoftImpute(loss="logistic", tol=1e-2, random_state=0), answers()),
        biased=(SoftImpute(loss="logistic", normalise="bias", tol=1e-2, random_state=0), answers()),
        path=(SoftImpute(5, path=3), near()),
        small=(SoftImpute(1, tau=0.05, debias=True), near()),
        proximal=(SoftImpute(tau=0.8, method="proximal", tol=1e-2, max_iter=40), near()),
        restarted=(SoftImpute(tau=0.1, method="proximal", tol=1e-4, max_iter=25), near()),
        single=(SoftImpute(tau=0.5, tol=1e-3), near().astype(np.float32)),
    )


@case
def svt_accelerated_and_plain() -> Any:
    return several(
        fast=(SVT(tau=5.0, tol=1e-4, max_iter=40), exact()),
        slow=(SVT(tau=5.0, tol=1e-4, max_iter=40, accelerate=False), exact()),
        long=(SVT(tau=5.0, step=30.0, tol=1e-4, max_iter=60), exact()),
        short=(SVT(tau=2.0, step=0.5, tol=1e-4, max_iter=15), exact()),
        rough=(SVT(max_iter=60), near()),
    )


@case
def svp_steps() -> Any:
    return several(
        auto=(SVP(2, tol=1e-5, max_iter=60), near()),
        fixed=(SVP(2, tol=1e-5, step=1.3, max_iter=30), near()),
        wild=(SVP(2, tol=1e-5, step=9.0, max_iter=30), near()),
        column=(SVP(1, normalise="column", max_iter=20), holes()),
        single=(SVP(1, tol=1e-3, max_iter=20), near().astype(np.float32)),
    )


@case
def exact_recovery_by_paces() -> Any:
    thin = exact()
    thin[np.random.default_rng(1).random(thin.shape) < 0.3] = np.nan
    return several(
        full=(ExactRecovery(2, tol=1e-6), exact()),
        thin=(ExactRecovery(2, tol=1e-4, max_iter=40), thin),
        high=(ExactRecovery(3, tol=1e-4, max_iter=30), exact()),
        noisy=(ExactRecovery(2, max_iter=25), near()),
    )


@case
def recovery_reports() -> Any:
    blocks = np.full((6, 5), np.nan)
    blocks[:3, :2], blocks[3:5, 2:4], blocks[5, 4] = 1.0, 2.0, 3.0
    model = SVP(2, max_iter=20, random_state=0).fit(near())
    reports = [
        eckart.recovery(near(), 2),
        eckart.recovery(near(), 2, fit=model),
        eckart.recovery(blocks, 2),
        eckart.recovery(near(), 6),
        eckart.recovery(near(), 4),
    ]
    return [
        [r, r.possible, r.connected, r.oversampling, r.bound, r.verdict, str(r)] for r in reports
    ] + [
        incoherence(model),
        incoherence(model, block=24),
        incoherence(eckart.LowRank(np.eye(4)[:, :2], np.eye(5)[:, :2])),
    ]


@case
def recovery_certificates() -> Any:
    model = ExactRecovery(2, tol=1e-8, random_state=0).fit(exact())
    return eckart.recovery_certificate(model, eckart.observed(exact())).to_dict()


@case
def singular_triples() -> Any:
    a = noise()
    rng = np.random.default_rng(3)
    out = [eckart.randomized_svd(a, 3, random_state=0)]
    out += [
        eckart.randomized_svd(
            sparse.csr_array(a), 2, oversampling=1, power_iterations=1, random_state=1
        )
    ]
    out += [
        eckart.randomized_svd(a, 3, single_pass=True, random_state=0),
        eckart.randomized_svd(np.diag([2.0, 1.0, 0.0, 0.0]), 4, random_state=0)[1],
    ]
    from eckart.complete.nuclear.operators import operator

    found = partial_svd(operator(a), 3, rng=rng, tol=1e-3, basis_limit=12)
    out += [
        found.values,
        np.abs(found.left).sum(axis=0),
        partial_svd(operator(a), 3, rng=rng, tol=1e-9).values,
        np.abs(rank_one(a, random_state=0)[0]),
        rank_one(a, tol=1e-3, random_state=0)[1],
    ]
    out += [norms(np.array([3.0, 1.0, 0.5])), rank_one(np.zeros((3, 2)), random_state=0)[1]]
    return out


@case
def als_under_losses() -> Any:
    quick = {"max_iter": 6, "tol": 0.0}
    return several(
        logistic=(
            ALS(2, loss="logistic", **quick),
            answers(),
            lambda m: [m.predict_proba(*CELLS), m.fold_in(answers()[:3])],
        ),
        ordered=(
            ALS(2, loss="ordered", **quick),
            grades(),
            lambda m: [m.predict(*CELLS), m.transform(grades()[:3])],
        ),
        poisson=(ALS(1, loss="poisson", **quick), few(), lambda m: m.transform(few()[:3])),
        huber=(ALS(2, loss="huber", **quick), near(), lambda m: m.transform(near()[:3])),
        absolute=(ALS(1, loss="absolute", **quick), grades()),
        absolute_free=(ALS(1, loss="absolute", **quick), near()),
    )


@case
def als_by_options() -> Any:
    quick = {"max_iter": 5, "tol": 0.0}
    weights = np.where(np.isnan(near()), np.nan, 1.0 + np.arange(240).reshape(20, 12) % 3)
    return several(
        cg=(ALS(2, solver="cg", biases=False, **quick), near()),
        scaled=(ALS(2, scale=True, **quick), 3 * near() + 1.0),
        scaled_huber=(ALS(2, scale=True, loss="huber", **quick), 3 * near() + 1.0),
        many=(ALS(4, l2=0.5, l2_bias=0.2, l2_power=0.5, **quick), near()),
        stop=(ALS(2, tol=1e-2, max_iter=50), near()),
        gradient=(ALS(1, stop="gradient", tol=1e-2, max_iter=30), near()),
        held=(ALS(2, stop="held_out", max_iter=12), near()),
        unobserved=(
            ALS(2, feedback="implicit", zeros="unobserved", strengths="log", solver="cg", **quick),
            sparse.csr_array(counts() ** 3),
        ),
        strong=(
            ALS(3, feedback="implicit", alpha=5.0, unobserved_weight=0.2, **quick),
            sparse.csr_array(counts()),
        ),
    ) | {
        "weighed": fitted(
            ALS(2, **quick),
            near(),
            lambda m: m.certify(near(), weights=weights).to_dict(),
            weights=weights,
        )
    }


def described() -> tuple[pd.DataFrame, pd.DataFrame]:
    from spec.test_6_5_features import planted

    table, frame, *_ = planted(n=30, m=20, hidden=4)
    return table, frame


NAMES = {"rows": "user", "columns": "item", "values": "value"}


NEW = pd.DataFrame({"user": [900, 901], "age": [25.0, np.nan], "job": ["y", "z"]})


@case
def als_with_attributes() -> Any:
    table, frame = described()
    turned = {"rows": "item", "columns": "user", "values": "value"}

    def ask(m):
        return [
            m.predict([900, 901], 4, row_features=NEW),
            m.transform(row_features=NEW),
            m.recommend(row_features=NEW, n=3).scores,
        ]

    return {
        "rows": fitted(ALS(2, max_iter=5, tol=0.0), table, ask, **NAMES, row_features=frame),
        "columns": fitted(
            ALS(2, max_iter=4, tol=0.0, biases=False), table, **turned, column_features=frame
        ),
        "loss": fitted(
            ALS(1, max_iter=4, tol=0.0, loss="huber"), table, **NAMES, row_features=frame
        ),
        "held": fitted(ALS(1, max_iter=6, stop="held_out"), table, **NAMES, row_features=frame),
    }


CHAIN = {"n_samples": 4, "burn_in": 4, "thin": 1}


@case
def chains_with_attributes_and_time() -> Any:
    table, frame = described()

    def ask(m):
        return [
            m.predict([1, 2], [3, 4], time=[0.1, 0.9]),
            m.interval([1, 2], [3, 4], time=[0.1, 0.9]),
            m.deviation([1, 2], [3, 4], noise=False),
            m.explain(1, 3, time=0.5),
            m.predict([900, 901], 4, row_features=NEW),
            m.predict(np.arange(3)),
            m.explain(2, 4),
        ]

    return {
        "all": fitted(
            BayesianMF(2, **CHAIN, noise="row", implicit_features=True),
            table,
            ask,
            **NAMES,
            row_features=frame,
            time="when",
        ),
        "time": fitted(
            BayesianMF(1, **CHAIN),
            table,
            lambda m: m.predict([1, 2], [3, 4], time=[0.1, 0.9]),
            **NAMES,
            time="when",
        ),
        "attributes": fitted(
            BayesianMF(1, **CHAIN, noise="column"),
            table,
            lambda m: m.predict([900, 901], 4, row_features=NEW),
            **NAMES,
            row_features=frame,
        ),
    }


@case
def chains_of_likelihoods() -> Any:
    def ask(x):
        return lambda m: [
            m.predict(*CELLS, return_std=True),
            m.interval(*CELLS),
            m.predict(np.arange(3)),
            m.transform(x[:2]),
            m.fold_in(x[:2]),
            m.certify(x).to_dict()["facts"],
        ]

    def proba(x):
        return lambda m: [*ask(x)(m), m.predict_proba(*CELLS)]

    return several(
        probit=(BayesianMF(1, likelihood="probit", **CHAIN), answers(), proba(answers())),
        ordinal=(BayesianMF(1, likelihood="ordinal", **CHAIN), grades(), proba(grades())),
        spread=(
            BayesianMF(1, likelihood="ordinal", noise="both", **CHAIN),
            grades(),
            proba(grades()),
        ),
        poisson=(BayesianMF(1, likelihood="poisson", **CHAIN), few(), ask(few())),
        chains=(BayesianMF(2, n_chains=3, clip=None, **CHAIN), near(), ask(near())),
        single=(BayesianMF(1, **CHAIN), near().astype(np.float32), ask(near().astype(np.float32))),
    )


@case
def chains_take_in_rows() -> Any:
    out = []
    for options in ({}, {"noise": "both", "implicit_features": True}, {"likelihood": "ordinal"}):
        x = grades() if options.get("likelihood") else near()
        model = BayesianMF(1, random_state=0, **CHAIN, **options).fit(x)
        new = eckart.observed(x[:2] * 1.0)
        out.append(model.update(new).predict(np.arange(4)))
    return out


@case
def items_take_in_rows() -> Any:
    x, out = counts(), []
    for model in (EASE(2.0), SLIM(1.0, l1=0.1), SpectralFilter(3, random_state=0)):
        model.fit(sparse.csr_array(x[:40])).update(sparse.csr_array(x[40:43]))
        out.append(
            [
                model.recommend([0, 41, 42], 4).scores,
                model.fold_in(np.where(x[50:52] > 0, x[50:52], np.nan)),
                model.predict([41], [3]),
            ]
        )
    names = {"rows": "u", "columns": "i", "values": "v"}
    table = pd.DataFrame(
        {"u": list("aabbcc"), "i": list("xyyzzx"), "v": [1.0, 2.0, 3.0, 1.0, 1.0, 2.0]}
    )
    model = EASE(1.0, strengths="raw").fit(table, **names)
    model.update(
        eckart.observed(
            pd.DataFrame({"u": list("add"), "i": list("zxy"), "v": [1.0, 1.0, 4.0]}), **names
        )
    )
    return [
        *out,
        model.recommend(["a", "d", "b"], 2).scores,
        model.similar(columns=["x"], n=2).scores,
        model.similar(rows=["a", "d"], n=2).scores,
        model.explain("d", "z"),
    ]


@case
def sparse_features_of_a_chain() -> Any:
    from eckart.complete.bayes.features import Iterative

    x = sparse.csr_array(np.where(counts()[:20, :6] > 0, counts()[:20, :6], 0.0))
    rng, rest = np.random.default_rng(2), np.random.default_rng(1).standard_normal((20, 2))
    link = Iterative(x, 2)
    return [
        [link.draw(rng, rest, np.eye(2), np.eye(2)), link.weights(), link.strength]
        for _ in range(2)
    ]


@case
def item_models() -> Any:
    x, new = sparse.csr_array(counts()), np.where(counts()[:3] > 0, counts()[:3], np.nan)

    def ask(m):
        return [
            m.recommend([0, 5, 7], 3).scores,
            m.recommend(X=new, n=2).scores,
            m.explain(0, 3),
            m.transform(new),
            m.certify(x).to_dict()["facts"],
        ]

    return several(
        ease=(EASE(3.0), x, ask),
        ease_raw=(EASE(1.0, strengths="raw"), x, ask),
        slim=(SLIM(1.0, l1=0.5), x, ask),
        slim_short=(SLIM(0.5, l1=0.05, max_iter=3), x, ask),
        filter=(SpectralFilter(4, alpha=0.6), x, ask),
        filter_wide=(SpectralFilter(60, alpha=0.0), x, ask),
    )


@case
def held_out_answers() -> Any:
    seen = judge(lambda x: ALS(1, max_iter=5, random_state=0).fit(x), eckart.observed(near()), 0.2)
    lists = judge(
        lambda x: ALS(2, feedback="implicit", max_iter=4, random_state=0).fit(x),
        eckart.observed(np.where(counts() > 0, counts(), np.nan)),
        0.2,
    )
    return [[h.scores, h.share, h.useful, h.rows, h.lines()] for h in (seen, lists)]
