"""Can it be recovered, which rows cannot, was it recovered, and is that proven."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eckart
from eckart.certify.recovery import _dense_smallest, _lanczos_smallest, recovery_certificate
from eckart.complete.nuclear.recovery import incoherence, recovery
from eckart.engines import engine_named
from eckart.factors import LowRank
from eckart.matrix import Observed
from eckart.optim.tangent import Sampling, Tangent


def problem(seed=0, n=40, m=35, k=2, share=0.6):
    rng = np.random.default_rng(seed)
    u, v = rng.standard_normal((n, k)), rng.standard_normal((m, k))
    seen = rng.random((n, m)) < share
    return LowRank(u, v), Observed.from_nan(np.where(seen, u @ v.T, np.nan))


def test_report_counts_and_names():
    x = np.full((5, 4), np.nan)
    x[:3, :2] = 1.0
    x[3, 2] = x[3, 3] = 2.0
    report = recovery(
        Observed.from_nan(x, rows=np.array(list("abcde")), columns=np.array(list("wxyz"))), 2
    )
    assert report.degrees == 2 * (5 + 4 - 2)
    assert report.entries == 8
    assert report.thin_rows.tolist() == ["e"]
    assert report.thin_columns.tolist() == ["y", "z"]
    assert [(r.tolist(), c.tolist()) for r, c in report.parts] == [
        (["a", "b", "c"], ["w", "x"]),
        (["d"], ["y", "z"]),
    ]
    assert not report.possible
    for words in (
        "fewer than the 14 degrees",
        "1 row with fewer than 2",
        "e",
        "2 parts share no entry",
    ):
        assert words in report.verdict
    assert "degrees of freedom" in str(report)


def test_report_of_a_good_problem():
    f, x = problem()
    report = recovery(x, 2, f)
    assert report.possible
    assert report.connected
    assert report.verdict.startswith("can be recovered")
    assert report.bound == pytest.approx(report.mu**2 * 40 * 2 * np.log(40) ** 6)
    with pytest.raises(
        eckart.InputError, match="k must be an int from 0 to 35 for 40 rows and 35 columns, got 99"
    ):
        recovery(x, 99)
    assert recovery(np.where(np.eye(4) > 0, np.nan, 1.0), 1).entries == 12


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(5, 20), st.integers(5, 20))
def test_incoherence_is_the_smallest_mu(seed, k, n, m):
    rng = np.random.default_rng(seed)
    u, v = (
        np.linalg.qr(rng.standard_normal((n, k)))[0],
        np.linalg.qr(rng.standard_normal((m, k)))[0],
    )
    p, q, e = u @ u.T, v @ v.T, u @ v.T
    bounds = [
        np.abs(p - k / n * np.eye(n)).max() * n,
        np.abs(q - k / m * np.eye(m)).max() * m,
        np.abs(e).max() * np.sqrt(n * m),
    ]
    assert incoherence(LowRank(u * np.arange(1.0, k + 1), v), block=8) == pytest.approx(
        max(bounds) / np.sqrt(k)
    )


def test_a_coordinate_direction_is_as_coherent_as_can_be():
    spike = LowRank(np.eye(50)[:, :1], np.eye(50)[:, :1])
    assert incoherence(spike) == pytest.approx(50)
    assert incoherence(LowRank(np.zeros((3, 0)), np.zeros((4, 0)))) == 0.0


def test_recovered_matrix_is_proven():
    f, x = problem()
    c = recovery_certificate(f, x)
    assert c["verdict"] == "proven"
    assert c.holds
    assert "every other one" in c.notes[0]


def test_dual_certificate_is_what_it_says():
    """Rebuilt by dense linear algebra: the smallest eigenvalue on T, and the least-norm Y."""
    f, x = problem(3, 12, 10, 1, 0.7)
    u, v = f.left / np.linalg.norm(f.left), f.right / np.linalg.norm(f.right)
    mask = np.zeros(x.shape)
    mask[np.repeat(np.arange(12), x.row_counts()), x.indices] = 1.0
    p, q = u @ u.T, v @ v.T
    eye = np.eye(120)
    on_t = np.kron(p, np.eye(10)) + np.kron(np.eye(12), q) - np.kron(p, q)
    pi = np.diag(mask.ravel())
    values = np.linalg.eigvalsh(on_t @ pi @ on_t + 10 * (eye - on_t))
    e = (u @ v.T).ravel()
    # zero eigenvalues are rounding, not directions
    y = pi @ on_t @ np.linalg.pinv(on_t @ pi @ on_t, rcond=1e-9) @ e
    off = ((eye - on_t) @ y).reshape(12, 10)
    c = recovery_certificate(f, x)
    assert c["smallest eigenvalue on T"] == pytest.approx(values[0], rel=1e-6)
    norm = np.linalg.norm(off, 2)  # the fact is a Ritz value, from below; the check holds its bound
    assert 0.99 * norm <= c["||P_Tperp Y||_2"] <= (1 + 1e-9) * norm
    assert norm <= next(check.value for check in c.checks if check.name == "dual certificate")


def test_a_changed_answer_is_disproven():
    f, x = problem()
    bad = LowRank(f.left + 1e-3 * np.random.default_rng(0).standard_normal(f.left.shape), f.right)
    c = recovery_certificate(bad, x)
    assert c["verdict"] == "disproven"
    assert "agreement" in c.reason


def test_a_free_direction_is_disproven():
    """A row with one entry at rank two: its code moves along a line while the entry stays."""
    f, x = problem()
    dense = np.full(x.shape, np.nan)
    dense[np.repeat(np.arange(40), x.row_counts()), x.indices] = x.data
    dense[0, 1:] = np.nan
    dense[0, 0] = (f.left @ f.right.T)[0, 0]
    c = recovery_certificate(f, Observed.from_nan(dense))
    assert c["verdict"] == "disproven"
    assert "free" in c.notes[0]


def test_few_entries_are_not_proven():
    verdicts = {
        recovery_certificate(*problem(seed, 60, 60, 3, 0.2))["verdict"] for seed in range(4)
    }
    assert "proven" not in verdicts


def test_two_blocks_cannot_be_related():
    x = np.full((6, 6), np.nan)
    x[:3, :3] = x[3:, 3:] = 1.0
    one = LowRank(np.ones((6, 1)), np.ones((6, 1)))
    c = recovery_certificate(one, Observed.from_nan(x))
    # scaling one block's rows up and its columns down changes no entry
    assert c["verdict"] == "disproven"


def test_lanczos_bound_is_below_the_exact_value():
    f, x = problem(1, 60, 50, 2, 0.6)
    u, v = (np.linalg.qr(a)[0] for a in (f.left, f.right))
    t = Tangent(Sampling(x, engine_named()), u, v)
    exact = _dense_smallest(t, x)
    low, words, _ = _lanczos_smallest(t, np.random.default_rng(0), 2 * (60 + 50 - 2))
    assert 0 < low <= exact * (1 + 1e-9)
    assert low > 0.3 * exact
    assert "0.999" in words


def test_models_and_wrong_types():
    from eckart.complete.nuclear.exact import ExactRecovery

    _, x = problem()
    model = ExactRecovery(2, random_state=0).fit(x)
    assert recovery_certificate(model)["verdict"] == "proven"
    assert recovery(x, 2, model).mu > 0
    with pytest.raises(eckart.InputError, match="LowRank"):
        recovery_certificate(np.eye(3))


def test_a_verdict_says_that_counts_know_nothing_of_coherence_and_names_rows_with_one_entry():
    rng = np.random.default_rng(0)
    a = np.outer(rng.standard_normal(40), rng.standard_normal(30))
    a[rng.random(a.shape) < 0.4] = np.nan
    a[7], a[:, 11] = np.nan, np.nan
    a[7, 2] = a[3, 11] = 1.0
    x = Observed.from_nan(a, rows=np.array([f"u{i}" for i in range(40)], object))
    counted = recovery(x, 1)
    assert counted.possible
    assert "knows nothing of coherence" in counted.verdict
    assert "1 row with one entry, which nothing checks: u7" in counted.verdict
    assert "1 column with one entry, which nothing checks: 11" in counted.verdict
    assert counted.single_rows.tolist() == ["u7"]
    spike = np.zeros((40, 1))
    spike[5] = 100
    spread = LowRank(rng.standard_normal((40, 1)), rng.standard_normal((30, 1)))
    spiked = LowRank(np.hstack([spread.left, spike]), np.hstack([spread.right, np.eye(30)[:, :1]]))
    assert "large" not in recovery(x, 1, spread).verdict
    assert "which is large" in recovery(x, 1, spiked).verdict


def test_connected_parts_of_a_matrix_in_parts_are_those_of_the_whole():
    """Rows that no part of the matrix connects are connected by columns of two parts; all entries
    are never in one place."""
    from eckart.matrix import Observed
    from eckart.matrix_blocks import of_parts
    from eckart.matrix_parts import MemoryParts

    a = np.full((7, 6), np.nan)
    for i, j in ((0, 0), (1, 1), (2, 2), (3, 0), (3, 1), (5, 4), (6, 4)):  # row 4 has none
        a[i, j] = 1.0
    x = Observed.from_nan(a)
    wanted = eckart.recovery(x, 1).parts
    for rows in (1, 2, 3):
        found = eckart.recovery(of_parts(MemoryParts(x, rows), x.rows, x.columns), 1).parts
        assert [[side.tolist() for side in part] for part in found] == [
            [side.tolist() for side in part] for part in wanted
        ]
