"""The thread pool: every part is done once, by any number of threads, callers and processes, and
interrupts leave nobody behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from sklearn.base import clone

from eckart import ALS, NMF, BayesianMF, GaussianMixture, Observed
from eckart.engines.cpu.dense import thin
from eckart.engines.cpu.dense.linear import orth
from eckart.engines.cpu.native import pool
from eckart.engines.cpu.native.pool import run_parts
from eckart.engines.cpu.ridge.kernels import RidgeRows

THREADS = (1, 2, 3, 5, 16)


@pytest.fixture(autouse=True, scope="module")
def kernels():
    """Small data go to kernels here: these are what the threads share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eckart.engines.cpu.engine.CpuEngine.small", 0)
        yield


@njit(nogil=True, cache=True)
def mark(part, who, times, by):
    times[part] += 1
    by[part] = who


def marked(count: int, threads: int) -> tuple[np.ndarray, np.ndarray]:
    times, by = np.zeros(max(1, count), np.int64), np.full(max(1, count), -1)
    run_parts(mark, count, (times, by), threads)
    return times, by


@settings(deadline=None)
@given(st.integers(0, 200), st.sampled_from(THREADS))
def test_every_part_is_done_once(count, threads):
    times, by = marked(count, threads)
    assert (times[:count] == 1).all()
    assert by[:count].max(initial=0) < threads


def test_short_work_after_pauses_of_any_length():
    """Threads are awake, about to sleep, or asleep when they are called."""
    for pause in (0, 1e-5, 1e-4, 3e-4, 1e-3, 5e-3):
        for _ in range(40):
            assert (marked(33, 5)[0] == 1).all()
            time.sleep(pause)


def test_callers_side_by_side():
    wrong = []

    def call() -> None:
        for _ in range(60):
            if not (marked(40, 4)[0] == 1).all():
                wrong.append(1)

    callers = [threading.Thread(target=call) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_two_callers_have_a_pool_each(monkeypatch):
    """Neither waits for the other, and neither falls back on threads of Python."""
    fallen = []
    monkeypatch.setattr(pool, "run_lanes", lambda *given: fallen.append(given))
    marked(40, 4)
    first = pool.pool(free=True)
    try:
        assert (marked(40, 4)[0] == 1).all()
        second = pool.pool(free=True)
        assert second is not None
        assert second is not first
        second.lock.release()
    finally:
        first.lock.release()
    assert not fallen
    taken = [pool.pool(free=True) for _ in range(pool.SIDE_BY_SIDE + 1)]
    try:
        assert taken[-1] is None
        assert len(set(taken)) == pool.SIDE_BY_SIDE + 1
        marked(40, 4)
        assert len(fallen) == 1
    finally:
        for team in taken[:-1]:
            team.lock.release()


def in_child(answers) -> None:
    answers.put(int(marked(50, 4)[0].sum()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_has_a_pool_of_its_own():
    marked(50, 4)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=in_child, args=(answers,))
    child.start()
    assert answers.get(timeout=30) == 50
    child.join(30)
    assert child.exitcode == 0


def test_without_a_pool_threads_of_python_do_the_same(monkeypatch):
    monkeypatch.setattr(pool, "pool", lambda free: None)
    for threads in THREADS:
        times, by = marked(70, threads)
        assert (times == 1).all()
        assert by.max() < threads


@pytest.mark.skipif(
    sys.platform == "win32" or not hasattr(signal, "SIGINT"), reason="needs POSIX signals"
)
def test_interrupts_leave_nobody_at_work():
    script = Path(__file__).with_name("interrupted_pool.py")
    done = subprocess.run(
        [sys.executable, str(script), "1.5"], capture_output=True, text=True, timeout=60, check=True
    )
    runs, interrupted, wrong, working = map(int, done.stdout.split())
    assert runs > 10
    assert interrupted > 10
    assert wrong == 0
    assert working == 0


@settings(deadline=None)
@given(
    st.integers(0, 300),
    st.integers(1, 9),
    st.integers(0, 7),
    st.sampled_from((np.float32, np.float64)),
    st.integers(0, 2**31),
)
def test_thin_products_are_those_of_numpy(rows, columns, width, dtype, seed):
    rng = np.random.default_rng(seed)
    wide = rng.standard_normal((rows, columns + 3)).astype(dtype)
    q, v = wide[:, :columns], rng.standard_normal((rows, width)).astype(dtype)
    s, weights = rng.standard_normal((columns, width)).astype(dtype), rng.random(rows)
    near = {"rtol": 50 * np.finfo(dtype).eps, "atol": 50 * np.finfo(dtype).eps * (rows + 10)}
    for threads in (1, 3):
        np.testing.assert_allclose(thin.inner(q, v, None, threads), q.T @ v, **near)
        np.testing.assert_allclose(
            thin.inner(q, v, weights, threads), q.T @ (v * weights[:, None]), **near
        )
        np.testing.assert_allclose(thin.outer(q, s, None, 1.0, threads), q @ s, **near)
        np.testing.assert_allclose(
            thin.outer(q, s, v, -0.5, threads), q @ s - dtype(0.5) * v, **near
        )
        out, square = thin.outer_inner(q, s, None, threads)
        np.testing.assert_allclose(out, q @ s, **near)
        np.testing.assert_allclose(square, out.T @ out, **near)
        out, cross = thin.outer_inner(v, 0.3, q, threads)
        np.testing.assert_allclose(out, dtype(0.3) * v, **near)
        np.testing.assert_allclose(cross, q.T @ out, **near)
        left = v.copy()
        square = thin.subtract_inner(left, q, s, threads)
        np.testing.assert_allclose(left, v - q @ s, **near)
        np.testing.assert_allclose(square, left.T @ left, **near)


def test_thin_products_have_the_same_bits_on_any_number_of_threads():
    rng = np.random.default_rng(0)
    q, v = (
        rng.standard_normal((40_000, 24)).astype(np.float32),
        rng.standard_normal((40_000, 16)).astype(np.float32),
    )
    assert len({thin.inner(q, v, None, threads).tobytes() for threads in THREADS}) == 1
    assert (
        len(
            {
                b"".join(a.tobytes() for a in thin.outer_inner(v, 0.7, q, threads))
                for threads in THREADS
            }
        )
        == 1
    )


@pytest.mark.parametrize("rows", [9, 40_001], ids=["one range", "many"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_product_in_its_own_place_is_the_same_to_the_bit(rows, dtype):
    """A range that overwrote rows before it had read them would show in every number after them."""
    rng = np.random.default_rng(0)
    v, s = (rng.standard_normal((n, 24)).astype(dtype) for n in (rows, 24))
    for threads in THREADS:
        fresh, own = thin.outer_inner(v, s, None, threads), v.copy()
        inside = thin.outer_inner(own, s, None, threads, inside=True)
        assert inside[0] is own
        assert [a.tobytes() for a in inside] == [a.tobytes() for a in fresh]
    narrow, own = thin.outer_inner(v, s[:, :7], None, 2), v.copy()
    np.testing.assert_array_equal(
        thin.outer_inner(own, s[:, :7], None, 2, inside=True)[0], narrow[0]
    )
    np.testing.assert_array_equal(own, v)  # a narrower product has no place in it
    orth(own, None, 2)
    np.testing.assert_array_equal(own, v)


@njit(nogil=True, cache=True)
def unpack(part, who, nested, records, out):
    """Arrays inside tuples and records are taken out again, which counts references where arrays
    own their memory."""
    (a, b), c = nested
    for _ in range(20):
        some, own = (a, b)[0], records.indptr
        fresh = np.zeros(8)
        fresh[0] = some[part] + b[part] + c[part] * records.indices[0] + own[part]
    out[part] = fresh[0]


def test_arrays_inside_tuples_are_lent():
    """What counted their references when they came from Python is gone by the time a thread takes
    them; a kernel that counted there would destroy memory."""
    for seed in range(300):
        a, b, c = np.random.default_rng(seed).random((3, 64))
        out = np.empty(64)
        run_parts(
            unpack,
            64,
            (((a.copy(), b.copy()), c), RidgeRows(np.arange(64.0), np.full(1, 0.5)), out),
            4,
        )
        np.testing.assert_array_equal(out, a + b + c * 0.5 + np.arange(64.0))
        garbage = [np.random.default_rng(i).random(9) for i in range(50)]
    assert garbage


@pytest.mark.parametrize(
    "model",
    [
        ALS(3, max_iter=2, random_state=0, n_threads=3),
        ALS(3, max_iter=2, random_state=0, n_threads=3, feedback="implicit"),
        ALS(3, max_iter=2, random_state=0, n_threads=3, nonnegative=True),
        BayesianMF(3, n_samples=2, burn_in=1, thin=1, random_state=0, n_threads=3),
        NMF(3, max_iter=4, solver="cd", random_state=0, n_threads=3),
        GaussianMixture(3, max_iter=3, random_state=0, n_threads=3),
        GaussianMixture(3, covariance_type="diag", max_iter=3, random_state=0, n_threads=3),
    ],
    ids=["ALS", "implicit", "nonnegative", "BayesianMF", "NMF", "mixture", "diagonal mixture"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_few_threads_and_many_give_the_same_bits(model, monkeypatch):
    """Kernels called from Python and by their address: the same ranges, the same sums."""
    from eckart.engines.cpu.mixtures import pool_sums as mixtures

    rng = np.random.default_rng(0)
    x = rng.random((900, 120)) + 0.1
    monkeypatch.setattr(mixtures, "WORTH", 0)
    calls = []
    monkeypatch.setattr(
        mixtures, "run_parts", lambda *given: (calls.append(given), pool.run_parts(*given))
    )
    if isinstance(model, GaussianMixture):
        x = np.tile(x[:, :5], (5, 1)).astype(np.float32)
    elif not isinstance(model, NMF):
        # several ranges of rows
        x = Observed.from_nan(np.where(rng.random(x.shape) < 0.7, x, np.nan))
    found = []
    for threads in (1, 3, 16):
        fit = clone(model).set_params(n_threads=threads).fit(x)
        arrays = (
            (fit.components_,)
            if isinstance(model, NMF)
            else (fit.means_, fit.covariances_)
            if isinstance(model, GaussianMixture)
            else (fit.fit_.factors.left, fit.fit_.factors.right)
        )
        found.append(
            (b"".join(np.ascontiguousarray(a).tobytes() for a in arrays), fit.certificate_.facts)
        )
    for other in found[1:]:
        assert other[0] == found[0][0]
        assert other[1] == found[0][1]
    assert bool(calls) == isinstance(model, GaussianMixture)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weighted_rows_of_a_mixture_by_the_pool(dtype, monkeypatch):
    """Rows in memory of either precision, weighted or not, turned or not: the sums of threads of
    Python, to the bit."""
    from eckart.engines import engine_named
    from eckart.engines.cpu.mixtures import pool_sums as mixtures
    from eckart.engines.protocol.mixtures import Gaussians
    from eckart.matrix import Dense

    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((2000, 4)).astype(dtype), rng.random(2000)
    theta = Gaussians(
        "diag", np.full(3, 1 / 3), rng.standard_normal((3, 4)), rng.random((3, 4)) + 0.5
    )
    for values in (x, np.asfortranarray(x)):
        for weights in (None, w):
            found = []
            for worth in (0, np.inf):
                monkeypatch.setattr(mixtures, "WORTH", worth)
                placed = engine_named("cpu", 3).put(Dense(values), weights)
                sums = [engine_named("cpu", 3).gaussian_statistics(placed, theta) for _ in range(2)]
                found += [
                    [
                        np.asarray(value).tobytes()
                        for value in vars(own).values()
                        if not isinstance(value, str)
                    ]
                    for own in sums  # the first looks for gaps
                ]
                assert placed.checked
            assert all(each == found[0] for each in found)


def test_the_pool_looks_once_for_gaps_and_leaves_rows_with_gaps_alone(monkeypatch):
    from eckart.engines import engine_named
    from eckart.engines.cpu.mixtures import pool_sums as mixtures
    from eckart.engines.protocol.mixtures import Gaussians
    from eckart.matrix import Dense

    rng = np.random.default_rng(1)
    x = rng.standard_normal((2000, 4))
    x[7, 2] = np.nan
    theta = Gaussians(
        "diag", np.full(3, 1 / 3), rng.standard_normal((3, 4)), rng.random((3, 4)) + 0.5
    )
    looks, real, found = [], mixtures.largest, []
    monkeypatch.setattr(mixtures, "largest", lambda *given: (looks.append(1), real(*given))[1])
    for worth in (0, np.inf):
        monkeypatch.setattr(mixtures, "WORTH", worth)
        placed = engine_named("cpu", 3).put(Dense(x))
        sums = [engine_named("cpu", 3).gaussian_statistics(placed, theta) for _ in range(2)][1]
        found.append(
            [
                np.asarray(value).tobytes()
                for value in vars(sums).values()
                if not isinstance(value, str)
            ]
        )
        assert not placed.checked
    assert found[0] == found[1]
    assert len(looks) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 16, 31])
def test_partial_sums_are_added_up_in_one_order(count, dtype):
    rng = np.random.default_rng(count)
    parts = [rng.standard_normal((300, 211)).astype(dtype) for _ in range(count)]
    found = [thin.tree_sum([part.copy() for part in parts], threads) for threads in THREADS]
    assert len({total.tobytes() for total in found}) == 1
    np.testing.assert_allclose(
        found[0], np.sum(parts, axis=0), atol=50 * count * np.finfo(dtype).eps
    )


def test_columns_are_written_between_others():
    rng = np.random.default_rng(0)
    for rows, width in ((7, 1), (50_000, 1), (50_000, 3)):
        into, columns = rng.standard_normal((rows, 9)), rng.standard_normal((rows, width))
        wanted = into.copy()
        wanted[:, 4 : 4 + width] = columns
        thin.write_columns(into, 4, columns, 3)
        np.testing.assert_array_equal(into, wanted)


@pytest.mark.parametrize("threads", [1, 3])
def test_many_biases_by_the_pool(threads):
    """Sums of a kernel against those of NumPy: rows without entries and rows whose entries weigh
    nothing have no bias."""
    from eckart.engines import engine_named
    from eckart.engines.protocol import RidgeRule

    rng = np.random.default_rng(2)
    x = np.where(rng.random((700, 90)) < 0.6, rng.standard_normal((700, 90)), np.nan)
    x[5] = np.nan
    x = Observed.from_nan(x)
    weights = rng.random(x.nnz)
    weights[x.indptr[8] : x.indptr[9]] = 0.0
    offset, rule = rng.standard_normal(90), RidgeRule(0.3, bias=True, bias_l2=0.0)
    found = [
        engine_named(name, threads).bias_rows(x, rule, offset, weights, mean=0.2)
        for name in ("cpu", "numpy")
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12, atol=1e-12)
    assert (found[0][[5, 8]] == 0).all()
    assert (found[0][[4, 9]] != 0).all()
