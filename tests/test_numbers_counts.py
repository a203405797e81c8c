"""Certificates of words, weights between columns, parts and topics: every number is what its
definition says.

The numbers are computed again from dense matrices in NumPy, at points that are no answers: at an
answer most of them are zero and a wrong formula looks right.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from dense_points import ENGINE, traced
from eckart import Observed
from eckart.certify import items, pairs, topics
from eckart.certify import pairs as glove
from eckart.engines.protocol import RidgeRule, SparseRows
from eckart.factors import Embedding
from eckart.matrix import Counts
from eckart.trace import StopReason


@pytest.fixture(autouse=True)
def at_work():
    with ENGINE.at_work():
        yield


def words_of(rng, n=12, k=2, size=0.5):
    return Embedding(
        size * rng.standard_normal((n, k)),
        context=size * rng.standard_normal((n, k)),
        bias=0.2 * rng.standard_normal(n),
        context_bias=0.2 * rng.standard_normal(n),
    )


@pytest.mark.parametrize(("l2", "bias_l2"), [(0.0, 0.0), (0.3, 0.15), (0.3, 2000.0)])
def test_glove_numbers(rng, l2, bias_l2):
    n = 12
    seen = rng.random((n, n)) < 0.5
    logs, w = (
        np.where(seen, rng.uniform(0.2, 3.0, (n, n)), 0.0),
        np.where(seen, rng.uniform(0.1, 1.0, (n, n)), 0.0),
    )
    # products of vectors above the logarithms: their gradient is the larger one where biases are
    # free
    f = words_of(rng, size=1.5)
    x = Observed.from_nan(np.where(seen, logs, np.nan))
    p = glove.GloveProblem.of(x, w[seen], RidgeRule(l2, bias=True, bias_l2=bias_l2), ENGINE)
    assert p.total == pytest.approx(w.sum())
    assert p.zero == pytest.approx(0.5 * np.sum(w * logs**2))
    assert p.pull == pytest.approx(
        (np.sum((w * logs).sum(axis=1) ** 2), np.sum((w * logs).sum(axis=0) ** 2))
    )
    c = glove.certify_glove(p, f, ENGINE, traced(1.0), [4.0 * p.zero, 3.0, 3.5])
    d = np.where(seen, logs - f.vectors @ f.context.T - f.bias[:, None] - f.context_bias, 0.0)
    loss = np.sum(w * d**2)
    assert c["loss"] == pytest.approx(loss / seen.sum())
    assert c["weighted residual"] == pytest.approx(np.sqrt(loss / w.sum()))
    assert c["pairs"] == seen.sum()
    r, full = w * d, w * (logs - f.bias[:, None] - f.context_bias)
    gradient = np.sum((l2 * f.vectors - r @ f.context) ** 2) + np.sum(
        (l2 * f.context - r.T @ f.vectors) ** 2
    )
    size = np.sum((full @ f.context) ** 2) + np.sum((full.T @ f.vectors) ** 2)
    bias = np.sum((bias_l2 * f.bias - r.sum(axis=1)) ** 2) + np.sum(
        (bias_l2 * f.context_bias - r.sum(axis=0)) ** 2
    )
    assert c["relative gradient"] == pytest.approx(
        np.sqrt(max(gradient / size, bias / sum(p.pull)))
    )
    # each of both is the larger one once
    assert (bias / sum(p.pull) > gradient / size) == (bias_l2 == 2000.0)
    assert c["never rises"] == pytest.approx(0.5 / (4.0 * p.zero))
    low = glove.certify_glove(p, f, ENGINE, traced(1.0), [0.5 * p.zero, 1.0, 1.5])
    assert low["never rises"] == pytest.approx(
        (1.5 - 1.0 if 1.0 - 0.5 * p.zero < 0.5 else 1.0 - 0.5 * p.zero) / p.zero
    )
    assert {check.name: check.limit for check in c.checks} == {
        "relative gradient": 0.02,
        "finite": 0.0,
        "never rises": 50 * np.finfo(float).eps,
    }
    broken = replace(f, bias=np.full(n, np.nan))
    with np.errstate(all="ignore"):
        assert "finite is" in glove.certify_glove(p, broken, ENGINE, traced(1.0)).reason
    assert [c.name for c in glove.certify_glove(p, f, ENGINE, traced(1.0), [1.0]).checks] == [
        "relative gradient",
        "finite",
    ]


@pytest.mark.parametrize("loss", ["negative", "softmax"])
def test_pairs_numbers(rng, loss):
    n, r = 12, 3.0
    counts = np.where(rng.random((n, n)) < 0.6, rng.integers(1, 9, (n, n)), 0).astype(float)
    q = rng.dirichlet(np.ones(n))
    f = words_of(rng)
    stored = sparse.csr_matrix(counts)
    p = pairs.PairWeights(Counts(stored.indptr, stored.indices, stored.data, n), q, r, loss)
    m = pairs.measure(p, f, ENGINE)
    s = f.vectors @ f.context.T + f.context_bias
    rows, total = counts.sum(axis=1, keepdims=True), counts.sum()

    def value(s):
        if loss == "softmax":
            return -np.sum(counts * (s - np.log(np.exp(s).sum(axis=1, keepdims=True)))) / total
        return (
            np.sum(counts * np.log1p(np.exp(-s))) + r * np.sum(rows * q * np.log1p(np.exp(s)))
        ) / total

    with np.errstate(divide="ignore"):
        best = np.where(
            counts > 0, np.log(counts / (rows if loss == "softmax" else r * rows * q)), -700.0
        )
    assert m.loss == pytest.approx(value(s), rel=1e-6)
    assert m.bound == pytest.approx(value(best), rel=1e-6)
    if loss == "softmax":
        pull, push = counts, rows * np.exp(s) / np.exp(s).sum(axis=1, keepdims=True)
    else:
        pull, push = counts / (1 + np.exp(s)), r * rows * q / (1 + np.exp(-s))
    sizes = [np.linalg.norm(part @ f.context) for part in (pull, push, pull - push)]
    assert m.gradient == pytest.approx(sizes[2] / (sizes[0] + sizes[1]), rel=1e-5)
    c = pairs.certify_pairs(p, f, ENGINE, solver="exact", trace=traced(1.0), facts={})
    assert c["gap"] == pytest.approx(m.loss - m.bound)
    assert c["loss over chance"] == pytest.approx(m.loss - m.chance)
    beside = counts.sum(axis=0) / total  # scores that do not know the word looked at
    flat = np.log(beside if loss == "softmax" else beside / (r * q))
    assert m.chance == pytest.approx(value(np.tile(flat, (len(counts), 1))), rel=1e-6)
    for other in flat + 0.1 * np.random.default_rng(1).standard_normal((20, len(flat))):
        assert m.chance <= value(np.tile(other, (len(counts), 1))) + 1e-9
    stopped = pairs.certify_pairs(
        p,
        f,
        ENGINE,
        solver="stochastic",
        trace=traced(1.0, reason=StopReason.INTERRUPTED),
        facts={},
    )
    assert "interrupted is" in stopped.reason
    assert stopped.checks[0].limit == 0.05


def test_pairs_on_a_sample_of_rows(rng, monkeypatch):
    """Rows that were drawn stand for the others: with all rows as frequent ones or drawn the
    numbers are those of all."""
    n = 12
    counts = np.where(rng.random((n, n)) < 0.6, rng.integers(1, 9, (n, n)), 0).astype(float)
    f, q = words_of(rng), rng.dirichlet(np.ones(n))
    stored = sparse.csr_matrix(counts)
    p = pairs.PairWeights(Counts(stored.indptr, stored.indices, stored.data, n), q, 3.0)
    whole = pairs.measure(p, f, ENGINE)
    for name, value in {"ALL": 5, "OFTEN": 4, "OTHERS": n - 4}.items():
        monkeypatch.setattr(pairs, name, value)
    assert list(pairs.measure(p, f, ENGINE)) == pytest.approx(list(whole), rel=1e-6)
    monkeypatch.setattr(pairs, "OTHERS", 4)
    some = pairs.measure(p, f, ENGINE)
    assert some.rows == 8
    order = np.argsort(-counts.sum(axis=1), kind="stable")
    drawn = np.random.default_rng(0).choice(order[4:], 4, replace=False)
    w = np.zeros(n)
    w[order[:4]], w[drawn] = 1.0, 2.0
    s = f.vectors @ f.context.T + f.context_bias
    rows = counts.sum(axis=1, keepdims=True)
    each = (counts * np.log1p(np.exp(-s)) + 3.0 * rows * q * np.log1p(np.exp(s))).sum(axis=1)
    assert some.loss == pytest.approx(w @ each / (w @ rows.ravel()), rel=1e-6)


def item_data(rng, n=9):
    x = np.where(rng.random((40, n)) < 0.4, rng.uniform(0.5, 2.0, (40, n)), 0.0)
    return x, x.T @ x


def placed(x):
    from eckart.io.read import read

    return ENGINE.put(read(x))


@pytest.mark.parametrize("step", [4, 256])
def test_weights_between_columns(rng, monkeypatch, step):
    monkeypatch.setattr(items, "STEP", step)
    x, g = item_data(rng)
    n, l2 = len(g), 0.7
    inverse = np.linalg.inv(g + l2 * np.eye(n))
    d = 1 / np.diag(inverse)
    best = np.eye(n) - inverse * d
    np.fill_diagonal(best, 0.0)
    w = best + np.where(np.eye(n) > 0, 0.0, 0.05 * rng.standard_normal((n, n)))

    def value(w):
        return 0.5 * np.sum((x - x @ w) ** 2) + 0.5 * l2 * np.sum(w**2)

    c = items.certify_zero_diagonal(ENGINE, placed(x), w, d, l2, rng)
    slope = (g + l2 * np.eye(n)) @ w - g
    np.fill_diagonal(slope, 0.0)
    assert c["KKT residual"] == pytest.approx(np.linalg.norm(slope))
    assert c["objective"] == pytest.approx(value(w))
    assert c["gap"] == pytest.approx(np.sum(slope**2) / (2 * l2))
    assert c["gap"] >= value(w) - value(best)
    assert c["relative gap"] == pytest.approx(c["gap"] / value(w))
    assert not c.holds
    assert items.certify_zero_diagonal(ENGINE, placed(x), best, d, l2, rng).holds
    assert (
        "diagonal is"
        in items.certify_zero_diagonal(
            ENGINE, placed(x), best + 1e-9 * np.eye(n), d, l2, rng
        ).reason
    )
    # of many columns by random vectors: four times the mean square is above the truth
    monkeypatch.setattr(items, "EXACT", 4)
    probed = items.certify_zero_diagonal(ENGINE, placed(x), w, d, l2, np.random.default_rng(0))
    z = np.random.default_rng(0).standard_normal((n, items.PROBES))
    rest = (np.diag(d) - (g + l2 * np.eye(n)) @ (np.eye(n) - w)) @ z
    assert probed["KKT residual"] == pytest.approx(2 * np.linalg.norm(rest) / np.sqrt(items.PROBES))
    assert probed["objective"] == pytest.approx(
        0.5 * (np.sum((x @ (z - w @ z)) ** 2) + l2 * np.sum((w @ z) ** 2)) / items.PROBES
    )
    assert (items.PROBES, items.SURE, items.BETTER) == (32, 4.0, 1e-6)
    assert items.certify_zero_diagonal(
        ENGINE, placed(x), best, d, l2, np.random.default_rng(0)
    ).holds


@pytest.mark.parametrize("step", [4, 256])
def test_sparse_weights_between_columns(rng, monkeypatch, step):
    monkeypatch.setattr(items, "STEP", step)
    x, g = item_data(rng)
    n, l1, l2, tol = len(g), 0.4, 0.7, 1e-4
    w = np.where(rng.random((n, n)) < 0.5, rng.uniform(0.0, 0.3, (n, n)), 0.0)
    np.fill_diagonal(w, 0.0)

    def made(w):
        csc = sparse.csc_matrix(w)
        return items.certify_sparse(
            ENGINE, placed(x), SparseRows(csc.indptr, csc.indices, csc.data), l1, l2, tol
        )

    c = made(w)
    slope = g @ w - g + l1 + l2 * w
    gaps = np.zeros(n)
    for j in range(n):
        for i in range(n):
            if i != j:  # the best of a concave parabola over t >= -w
                t = max(-slope[i, j] / l2, -w[i, j])
                gaps[j] += -slope[i, j] * t - 0.5 * l2 * t * t
    assert c["gap"] == pytest.approx(gaps.sum())
    assert c["gap of the worst column"] == pytest.approx(np.max(gaps / (0.5 * np.diag(g))))
    assert c["median gap of a column"] == pytest.approx(np.median(gaps / (0.5 * np.diag(g))))
    assert c["objective"] == pytest.approx(
        0.5 * np.sum((x - x @ w) ** 2) + l1 * w.sum() + 0.5 * l2 * np.sum(w**2)
    )
    assert c["constraints"] == 0.0
    assert c.checks[0].limit == pytest.approx(2 * tol + 1e-9)
    below, own = w.copy(), w.copy()
    below[0, 1], own[5, 5] = -0.01, 0.02
    assert made(below)["constraints"] == pytest.approx(0.01)
    assert made(own)["constraints"] == pytest.approx(0.02)


def test_parts_facts():
    from eckart.certify.nonnegative import MeasuredFactors, certify_parts
    from eckart.engines.protocol import FactorSums, Totals

    empty = FactorSums(*(np.zeros(2) for _ in FactorSums._fields))
    alive = empty._replace(least=0.0, most=np.ones(2), square=np.ones(2))
    dead = alive._replace(most=np.array([1.0, 0.0]))
    totals = Totals(*(0.0 for _ in Totals._fields))._replace(square=8.0, total=4.0, cells=10.0)

    def made(loss="frobenius", factors=(alive, alive), beta=2.0, totals=totals, values=(1.0,)):
        return certify_parts(
            MeasuredFactors(
                loss, 3.0, 1.0, (0.0, 0.0), factors, totals, 20.0, np.dtype(float), beta
            ),
            traced(*values),
        )

    assert made()["relative error"] == 0.5
    assert made("kl")["divergence per unit of mass"] == 0.25
    assert made("beta", beta=0.0)["divergence of an entry"] == 0.1
    assert "Itakura" in made("beta", beta=0.0).problem
    assert "beta = 1.5" in made("beta", beta=1.5).problem
    for pair in ((alive, dead), (dead, alive), (dead, dead)):
        assert made(factors=pair)["components that are zero"] == 1
    with pytest.raises(KeyError):
        made()["components that are zero"]
    nothing = totals._replace(square=0.0, total=0.0)
    for loss, fact in (("frobenius", "relative error"), ("kl", "divergence per unit of mass")):
        with pytest.raises(KeyError):
            made(loss, totals=nothing)[fact]
    assert made(values=(5.0, 4.0, 6.0))["never rises"] == pytest.approx(
        2.0 / 20.0
    )  # against the larger of scale and values
    assert made(values=(50.0, 4.0, 6.0))["never rises"] == pytest.approx(2.0 / 50.0)


def test_topics_facts(rng):
    from eckart.factors import Topics

    t = Topics(
        np.array([[30.0, 10.0, 10.0], [1.0, 20.0, 29.0]]), np.full(2, 0.2), np.array([0.99, 0.01])
    )
    assert topics._sizes(t, 50.0) == {"tokens": 50.0, "topics in use": 1}
    assert topics._sizes(t, 100.0)["topics in use"] == 2
    assert topics._starts([-3.0, -1.0, -2.0]) == {"starts": 3, "spread over starts": 2.0}
    assert topics._starts([-3.0]) == topics._starts(None) == {}
    assert topics._last(traced(1.0, 4.0)) == 3.0
    assert topics._last(traced(1.0)) == np.inf
    assert topics._tv(
        np.array([[0.2, 1.0], [0.8, 0.0]]), np.array([[0.5, 0.0], [0.5, 1.0]])
    ) == pytest.approx([0.3, 1.0])
    assert topics.falls(traced(1.0, 2.0, 2.0 - 1.1 * 2e-6, 3.0)) == 1
    assert topics.falls(traced(1.0, 2.0, 2.0 - 0.9 * 1e-6, 3.0)) == 0
    assert topics.falls(traced(3.0, 2.0, 1.0), (1, 9)) == 1
    assert topics.falls(traced(-3000.0, -2000.0, -2000.0 - 0.9 * 2e-3)) == 0
    assert topics.falls(traced(-3000.0, -2000.0, -2000.0 - 1.1 * 2e-3)) == 1


@pytest.mark.parametrize(("kind", "near"), [("variational", 1e-5), ("em", 2e-4)])
def test_documents_stand_still_before_a_step_of_topics_is_measured(rng, kind, near):
    """The gain at topics that are no answer is that of documents that stand still."""
    from eckart.explain.topics.lda_variational import Priors, VariationalProblem
    from eckart.explain.topics.topic_em import TopicProblem
    from eckart.factors import Topics

    x = Counts.from_scipy(sparse.csr_array(rng.poisson(0.6, (40, 25)).astype(np.float64)))
    t = Topics(rng.gamma(0.3, 1.0, (4, 25)) * 30 + 0.01, np.full(4, 0.1), np.full(4, 0.25))

    def problem():
        docs = ENGINE.put(x)
        if kind == "em":
            return TopicProblem(docs, ENGINE, t.prior, 1.1)
        return VariationalProblem(docs, Priors(t.prior, 0.1, None, False, False), ENGINE, 1, 0.0)

    if kind == "em":
        got = topics.certify_em(problem(), t, trace=traced(1.0), tol=0.0, name="LDA")
    else:
        got = topics.certify_variational(problem(), t, trace=traced(1.0), tol=0.0)
    exact = topics.one_more_step(problem(), t, 1e-9).gain
    assert got["gain of one more step"] == pytest.approx(exact, abs=near)
    assert topics.one_more_step(problem(), t, 1e-1).gain != pytest.approx(exact, abs=near)
