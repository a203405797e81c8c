"""The primitives that carry ALS's certificate and the draws of BayesianMF against the oracle, on
data where each argument matters."""

from __future__ import annotations

import numpy as np
import pytest
from registry import ENGINES, JUDGE
from test_contract import COLUMNS, assert_close, dtypes, ratings

from eckart.engines import engine_named
from eckart.engines.protocol import EvidenceSums, RidgeRule
from eckart.matrix import Observed

K = 9
RULES = {
    "one ridge": RidgeRule(0.7),
    "no ridge": RidgeRule(0.0),
    "biases": RidgeRule(0.3, 1.0, bias=True, bias_l2=0.1),
    "nonnegative": RidgeRule(0.3, nonnegative=True),
    "implicit": RidgeRule(0.01, 1.0, alpha=2.0, extra=30.0),
    "implicit, unobserved zeros": RidgeRule(0.01, 0.5, alpha=2.0, shift=0.3, extra=30.0),
}


def problem(rule, dtype, weighted=False):
    """A placed matrix with an empty row and an empty column, factors, biases."""
    rng = np.random.default_rng(4)
    x = ratings(dtype, "strengths" if rule.alpha else "ratings")
    left, right = (
        rng.standard_normal((40, K)).astype(dtype),
        rng.standard_normal((COLUMNS, K)).astype(dtype),
    )
    if rule.nonnegative:
        left, right = np.maximum(left, 0), np.maximum(right, 0)
    more = {
        "mean": 0.3,
        "own": rng.standard_normal(40).astype(dtype),
        "other": rng.standard_normal(COLUMNS).astype(dtype),
    }
    w = (rng.random(x.nnz) * 2).astype(dtype)
    w[::7] = 0.0
    return x, left, right, {} if rule.alpha else more, w if weighted else None


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("weighted", [False, True])
@dtypes
def test_evidence_rows(engine, name, weighted, dtype):
    rule = RULES[name]
    x, left, right, more, w = problem(rule, dtype, weighted and not rule.alpha)
    spread = 0.4 if rule.alpha else 0.0
    got = engine.evidence_rows(
        engine.put(x, entry_weights=w), left, right, rule, spread=spread, **more
    )
    want = JUDGE.evidence_rows(
        JUDGE.put(x, entry_weights=w), left, right, rule, spread=spread, **more
    )
    assert got.pull.dtype == dtype
    assert_close(got.pull, want.pull, dtype, 10)
    assert_close(got.row_sum, want.row_sum, dtype, 10)
    assert got.value == got.sums.value
    for field, one, two in zip(EvidenceSums._fields, got.sums, want.sums):
        assert one == pytest.approx(
            two, rel=1e-4 if dtype == np.float32 else 1e-11, abs=1e-4 * abs(want.value)
        ), field
    if weighted and not rule.alpha:
        bare = engine.evidence_rows(engine.put(x), left, right, rule, **more)
        assert bare.value > 1.01 * got.value
        given = engine.evidence_rows(engine.put(x), left, right, rule, weights=w, **more)
        assert given.sums == got.sums


def test_every_argument_of_evidence_rows_matters(engine):
    rule = RULES["biases"]
    x, left, right, more, _ = problem(rule, np.float64)
    whole = engine.evidence_rows(x, left, right, rule, **more).value
    for name in more:
        assert engine.evidence_rows(
            x, left, right, rule, **{n: v for n, v in more.items() if n != name}
        ).value != pytest.approx(whole, rel=1e-3)
    rule = RULES["implicit"]
    x, left, right, *_ = problem(rule, np.float64)
    one, two = (engine.evidence_rows(x, left, right, rule, spread=s).sums for s in (0.0, 0.4))
    assert one.value == pytest.approx(two.value)
    assert one.push < 0.9 * two.push


@pytest.mark.parametrize("name", ["one ridge", "biases", "implicit", "implicit, unobserved zeros"])
@pytest.mark.parametrize("width", [1, 5])
@dtypes
def test_residual_gram(engine, name, width, dtype):
    rule, rng = RULES[name], np.random.default_rng(1)
    for weighted in (False, not rule.alpha):
        x, left, right, more, w = problem(rule, dtype, weighted)
        v, q = (
            rng.standard_normal((COLUMNS, width)).astype(dtype),
            (rng.random(40) + 0.1).astype(dtype),
        )
        for spread in (0.0, 0.4) if rule.alpha else (0.0,):
            placed = engine.put(x, entry_weights=w)
            want = JUDGE.residual_gram(
                JUDGE.put(x, entry_weights=w), left, right, v, q, rule, spread=spread, **more
            )
            for _ in range(2):  # what an engine remembers of the first pass serves the second
                got = engine.residual_gram(placed, left, right, v, q, rule, spread=spread, **more)
                assert got.dtype == dtype
                assert_close(got, want, dtype, 30)
            other = engine.residual_gram(placed, left + 1, right, v, q, rule, spread=spread, **more)
            assert np.abs(other - want).max() > 0.1 * np.abs(want).max()


@dtypes
def test_offset_times(engine, dtype):
    rng = np.random.default_rng(2)
    x, _, _, more, _ = problem(RULES["biases"], dtype)
    v = rng.standard_normal((COLUMNS, 5)).astype(dtype)
    scales = (rng.random(40) + 0.5).astype(dtype), (rng.random(COLUMNS) + 0.5).astype(dtype)
    for given in (
        (0.0, None, None),
        (0.3, more["own"], None),
        (0.3, None, more["other"]),
        tuple(more.values()),
    ):
        for scaled in ((), scales, (scales[0], None), (None, scales[1])):
            got, want = (e.offset_times(e.put(x), v, *given, *scaled) for e in (engine, JUDGE))
            assert got.shape == want.shape == (40, 5)
            assert_close(got, want, dtype, 10)
    assert engine.offset_times(x, v[:, :0], 0.0, None, None).shape == (40, 0)


@dtypes
def test_precisions_of_rows_and_columns_weigh_the_entries(engine, dtype):
    """own_i other_j and one prior for all rows: the same as weights for every entry and a prior for
    every row."""
    rng, rule = np.random.default_rng(3), RidgeRule(0.2)
    x, _, right, _, w = problem(rule, dtype, True)
    own, other = (rng.random(40) + 0.2).astype(dtype), (rng.random(COLUMNS) + 0.2).astype(dtype)
    h, base = rng.standard_normal((1, K)).astype(dtype), np.eye(K) + 0.1
    at = np.repeat(np.arange(40), x.row_counts())
    for p in (own, own[:, None], 1.7):
        each = w * (p if isinstance(p, float) else own[at]) * other[x.indices]
        got = engine.ridge_rows(
            engine.put(x, entry_weights=w),
            right,
            rule,
            own=p,
            other=other,
            base=base,
            prior=h,
            mean=0.2,
        )
        want = JUDGE.ridge_rows(
            x,
            right,
            rule,
            weights=each,
            base=base,
            prior=np.repeat(h, 40, 0),
            offset=np.full(COLUMNS, 0.2),
        )
        assert_close(got.left, want.left, dtype, 30)
        assert_close(
            JUDGE.ridge_rows(
                JUDGE.put(x, entry_weights=w),
                right,
                rule,
                own=p,
                other=other,
                base=base,
                prior=h,
                mean=0.2,
            ).left,
            want.left,
            dtype,
            30,
        )


@dtypes
def test_misfit_penalty_and_precisions(engine, dtype):
    rng, rule = np.random.default_rng(5), RULES["biases"]
    x, left, right, more, w = problem(rule, dtype, True)
    other = (rng.random(COLUMNS) + 0.2).astype(dtype)
    for given in ({}, {"offset": more["other"]}, {"offset": more["other"], "other": other}):
        got, want = (
            e.misfit_rows(e.put(x, entry_weights=w), left, right, **given) for e in (engine, JUDGE)
        )
        assert got.dtype == np.float64
        assert_close(got, want, dtype, 10)
    for bias in (None, more["own"]):
        assert engine.ridge_penalty(x, rule, left, bias) == pytest.approx(
            JUDGE.ridge_penalty(x, rule, left, bias), rel=1e-6
        )
    misfit, counts = rng.random((9000, 1)), rng.integers(0, 50, (9000, 1)).astype(float)
    got, want = (e.precision_rows((3, 1), misfit, counts, 4.0, 2.0, 1e-9) for e in (engine, JUDGE))
    assert_close(got.values, want.values, np.float64)
    assert got[1:] == pytest.approx(want[1:], rel=1e-12)
    # the mean of each Gamma
    assert got.total / 9000 == pytest.approx(np.mean((4 + counts) / (2 + misfit)), rel=0.02)
    assert engine.precision_rows((3, 2), misfit, counts, 4.0, 2.0, 1e-9).total != got.total


@pytest.mark.parametrize("d", [1, 4, 9])
def test_pairs_of_two_sides(engine, d):
    rng = np.random.default_rng(8)
    one, two = rng.standard_normal((30, d)), rng.standard_normal((7, d))
    first, second = rng.integers(30, size=5000), rng.integers(7, size=5000)
    for at in (slice(0, 5000), slice(0, 1), slice(0, 0)):
        got, want = (
            e.pair_rows(e.take(one), e.take(two), first[at], second[at]) for e in (engine, JUDGE)
        )
        for a, b in zip(map(engine.get, got), want):
            assert a.shape == b.shape
            assert_close(a, b, np.float64)
    # a third side z = (v, 1) sees v.(u + w) and the rest as an offset: together all that three ids
    # say
    (u, b), (w, c), v = (
        np.split(one[3], [d - 1]),
        np.split(two[2], [d - 1]),
        rng.standard_normal(d - 1),
    )
    design, offset = (
        np.asarray(engine.get(a))
        for a in engine.pair_rows(engine.take(one), engine.take(two), np.array([3]), np.array([2]))
    )
    assert design[0, :-1] @ v + offset[0, 0] == pytest.approx(
        float(u @ v + w @ v + u @ w + b[0] + c[0])
    )


def test_works_at_the_same_time_answer_in_their_order(engine):
    x = engine.put(ratings(np.float64))
    seen = []

    def work(number):
        def run(own):
            seen.append(own)
            return number, np.asarray(own.get(own.normal((number, 1), (50, 2), np.float64)))

        return run

    found = engine.together(x, [work(number) for number in range(5)])
    assert [number for number, _ in found] == list(range(5))
    for number, values in found:
        np.testing.assert_array_equal(values, _drawn_like(engine, (number, 1), (50, 2)))
    assert len(seen) == 5

    def failing(own):
        raise RuntimeError("one of them")

    with pytest.raises(RuntimeError, match="one of them"):
        engine.together(x, [work(0), failing, work(1)])


def _drawn_like(engine, seed, shape):
    """What an engine draws: the judge's numbers, or its own ones again on a GPU."""
    own = getattr(getattr(engine, "device", None), "type", "cpu") != "cpu"
    return np.asarray((engine if own else JUDGE).normal(seed, shape, np.float64))


def test_normal_numbers_are_those_of_the_judge(engine):
    """A GPU draws its own, the same ones again."""
    got = np.asarray(engine.get(engine.normal((7, 3), (9000, 3), np.float64)))
    np.testing.assert_array_equal(got, _drawn_like(engine, (7, 3), (9000, 3)))
    np.testing.assert_allclose(got.T @ got / 9000, np.eye(3), atol=0.06)
    assert (np.asarray(engine.normal((7, 4), (9000, 3), np.float64)) != got).all()


def test_starts_come_from_the_generator(engine):
    """The next numbers of it; on a GPU other ones, the same for the same state."""
    first, again, other = (
        np.asarray(engine.get(engine.drawn(np.random.default_rng(seed), (400, 3), np.float32)))
        for seed in (3, 3, 4)
    )
    assert first.dtype == np.float32
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()
    np.testing.assert_allclose(first.T @ first / 400, np.eye(3), atol=0.3)
    if getattr(getattr(engine, "device", None), "type", "cpu") == "cpu":
        np.testing.assert_array_equal(
            first, np.random.default_rng(3).standard_normal((400, 3)).astype(np.float32)
        )


def test_sums_of_evidence_merge():
    one, two = EvidenceSums(*range(14)), EvidenceSums(*range(14, 28))
    assert one.merge(two) == EvidenceSums(*range(14, 42, 2))


def test_bits_do_not_depend_on_threads():
    from eckart.engines import engine_named

    rule = RULES["biases"]
    x, left, right, more, _ = problem(rule, np.float32)
    v, q = np.ones((COLUMNS, 2), np.float32), np.ones(40, np.float32)
    results = []
    for threads in (1, 2, 3, 5, 16):
        engine = engine_named("cpu", threads)
        seen = engine.evidence_rows(x, left, right, rule, **more)
        parts = [
            seen.pull,
            np.array(seen.sums),
            engine.residual_gram(x, left, right, v, q, rule, **more),
            engine.misfit_rows(x, left, right),
        ]
        results.append(b"".join(p.tobytes() for p in parts))
    assert len(set(results)) == 1
    assert len(ENGINES) >= 2


@pytest.mark.parametrize("name", ["cpu", "numpy", "torch"])
@pytest.mark.parametrize("bias", [False, True])
def test_ridge_rows_without_a_factor(name, bias):
    """A fit whose rank came out as 0 answers with biases alone, or zeros."""
    if name == "torch":
        pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = Observed.from_nan(np.where(rng.random((9, 7)) < 0.5, rng.standard_normal((9, 7)), np.nan))
    rule, engine = RidgeRule(0.5, bias=bias, bias_l2=1.0), engine_named(name)
    found = engine.ridge_rows(x, np.zeros((7, 0)), rule)
    assert engine.get(found.left).shape == (9, 0)
    rest = 0.5 * np.square(x.data).sum()
    if bias:
        sums = np.add.reduceat(np.append(x.data, 0.0), x.indptr[:-1]) * (np.diff(x.indptr) > 0)
        biases = sums / (np.diff(x.indptr) + 1.0)
        np.testing.assert_allclose(engine.get(found.bias), biases, atol=1e-12)
        rest -= 0.5 * float(sums @ biases)
    assert found.value == pytest.approx(rest, rel=1e-12)
