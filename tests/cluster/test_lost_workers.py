"""Workers, schedulers and users that go away: the same bits, or one clear error; nothing hangs and
nothing is left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from cluster.killer import Killer
from eckart import (
    ALS,
    EASE,
    LDA,
    NMF,
    PCA,
    PLSA,
    SVP,
    BayesianMF,
    GaussianMixture,
    LinearAutoencoder,
    Mixture,
    SoftImpute,
)
from eckart.errors import EckartError

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
db = pytest.importorskip("dask.bag")

HOW = {"rows": "user", "columns": "item", "values": "rating"}


def arrays(model):
    return {
        name: a
        for name, a in vars(model.fit_.factors).items()
        if isinstance(a, np.ndarray) and a.dtype.kind == "f"
    }


def same_bits(a, b):
    assert arrays(a).keys() == arrays(b).keys()
    for name, value in arrays(a).items():
        np.testing.assert_array_equal(arrays(b)[name], value, err_msg=name)


def test_a_worker_lost_in_each_phase_changes_no_bit(processes, rows, ratings, monkeypatch):
    """One of two workers is killed by SIGKILL just after a call was sent: while data are placed, in
    a sweep, in a merge, in the certificate."""
    from eckart.clusters import tasks

    parted = dd.from_pandas(ratings, npartitions=4)
    whole = ALS(3, random_state=0, max_iter=4).fit(parted, **HOW)
    calls, killer, wait = [], Killer(processes, 1.0), tasks.wait

    def wait_and_kill(client, futures):
        calls.append(len(futures))
        if len(calls) in (2, 9):  # while ids are collected, and in a sweep
            killer.one()
        return wait(client, futures)

    monkeypatch.setattr(tasks, "wait", wait_and_kill)
    same_bits(whole, ALS(3, random_state=0, max_iter=4).fit(parted, **HOW))
    assert killer.killed == 2


@pytest.mark.cluster
def test_a_task_that_no_worker_survives_ends_with_words(processes, monkeypatch):
    """A partition that ends every worker it comes to (here: by a signal; else by the limit of
    memory) is reported, not tried for ever."""
    from eckart.clusters import tasks
    from eckart.clusters.client import ClusterError

    monkeypatch.setattr(tasks, "ROUNDS", 1)

    def deadly(block, block_info=None):
        if block_info and block_info[0]["chunk-location"][0] == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    x = da.ones((100, 3), chunks=(50, 3)).map_blocks(deadly, meta=np.empty((0, 0)))
    with pytest.raises(
        ClusterError, match=r"ended their workers again and again.*partitions of at most \d+ MiB"
    ):
        PCA(1).fit(x)


@pytest.mark.cluster
@pytest.mark.timeout(900)
@pytest.mark.parametrize("later", [False, True], ids=["at first", "later"])
def test_a_task_that_dask_gives_up_is_sent_again(processes, ratings, tmp_path, monkeypatch, later):
    """Four workers die under one task of a table, while an earlier model holds blocks of the same
    name: the fit goes on to the same bits, whether ids are collected or, ``later``, a sweep is
    going on when the blocks are lost and made again."""
    from eckart.clusters import tasks

    deaths, calls, wait = tmp_path / "deaths", [], tasks.wait

    def deadly(part):
        if deaths.exists() and (
            said := deaths.read_text()
        ):  # one letter for each time the partition is read from now on
            deaths.write_text(said[1:])
            if said[0] == "x":
                os.kill(os.getpid(), signal.SIGKILL)
        return part

    def wait_and_lose(client, futures):
        calls.append(len(futures))
        if later and len(calls) == 7:
            deaths.write_text("xxxx")
            for pid in Killer(processes, 1.0).alive():
                os.kill(pid, signal.SIGKILL)
        return wait(client, futures)

    source = dd.from_pandas(ratings, npartitions=2)
    parted = source.map_partitions(
        lambda part, number=None: deadly(part) if part.index[0] == 0 else part,
        meta=ratings.iloc[:0],
    )
    fit = lambda: ALS(3, random_state=0, max_iter=2).fit(parted, **HOW)  # noqa: E731
    whole = fit()
    if not later:
        deaths.write_text(".xxxx")
        processes.restart()  # what was held is lost, and made again by the same tasks
    monkeypatch.setattr(tasks, "wait", wait_and_lose)
    same_bits(whole, fit())
    assert deaths.read_text() == ""


@pytest.mark.cluster
@pytest.mark.timeout(900)
def test_a_partition_beyond_the_memory_of_a_worker_ends_with_what_it_takes_and_what_would_do(
    monkeypatch,
):
    """A real limit: the nanny ends a worker that exceeds it. With partitions of the size that the
    error names the same data are fitted."""
    import re

    import dask
    from distributed import Client, LocalCluster

    from eckart.clusters import tasks
    from eckart.clusters.client import ClusterError

    monkeypatch.setattr(tasks, "ROUNDS", 1)
    rows, columns = 900_000, 200  # 1.4 GB in all
    # workers are ended at the limit, and not paused before: one task alone is too much for them
    strict = {f"distributed.worker.memory.{level}": False for level in ("target", "spill", "pause")}
    quick = {
        "distributed.scheduler.allowed-failures": 1,
        "distributed.deploy.lost-worker-timeout": "1h",
        "distributed.comm.timeouts.connect": "300s",
    }
    with (
        dask.config.set(strict | quick),
        LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None, memory_limit="1500MB"
        ) as cluster,
        Client(cluster),
    ):
        random = da.random.default_rng(0)
        with pytest.raises(ClusterError, match=r"ended their workers again and again") as told:
            PCA(2, svd_solver="eigh").fit(
                random.standard_normal((rows, columns), chunks=(rows, columns))
            )
        takes, would = (
            int(re.search(words, str(told.value))[1])
            for words in (r"takes about (\d+) MiB", r"at most (\d+) MiB would do")
        )
        assert takes == round(3 * rows * columns * 8 / 2**20)
        assert "A worker has 1.40 GiB" in str(told.value)
        fewer = would * 2**20 // (columns * 8)
        model = PCA(2, svd_solver="eigh").fit(
            random.standard_normal((rows, columns), chunks=(fewer, columns))
        )
    assert model.certificate_.holds


def test_ctrl_c_leaves_no_task_behind(processes, rows):
    def slow(block):
        time.sleep(2)  # one pass is not over when the interrupt comes
        return block

    def left():
        return set(
            processes.run_on_scheduler(lambda dask_scheduler: list(map(str, dask_scheduler.tasks)))
        )

    before = left()
    x = da.from_array(rows, chunks=(50, 12)).map_blocks(slow, meta=np.empty((0, 0)))
    threading.Timer(2.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    usual = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell starts what runs in the background with interrupts ignored
    try:
        PCA(2).fit(x)
        raise AssertionError("the fit was not interrupted")
    except KeyboardInterrupt:
        pass  # and what the frames of the fit held is let go
    finally:
        signal.signal(signal.SIGINT, usual)
    gc.collect()
    deadline = time.time() + 20
    while left() - before and time.time() < deadline:
        time.sleep(0.2)
    assert not left() - before


@pytest.mark.cluster
def test_a_worker_with_another_version_is_named(processes, rows):
    # those of the tests before may still be starting again
    processes.wait_for_workers(2, timeout=120)
    processes.run(_pretend, "0.0.1")
    try:
        with pytest.raises(
            EckartError,
            match=r"worker .* has eckart 0\.0\.1, this process has .*install the same version",
        ):
            PCA(2).fit(da.from_array(rows, chunks=(1000, 12)))
    finally:
        processes.run(_pretend, __import__("eckart").__version__)


def _pretend(version):
    import eckart

    eckart.__version__ = version


@pytest.mark.cluster
@pytest.mark.parametrize("slowly", [False, True], ids=["at once", "slowly"])
@pytest.mark.parametrize("at", [2, 7])
def test_a_client_that_loses_the_network_goes_on_and_leaves_nothing(
    processes, ratings, monkeypatch, at, slowly
):
    """The connection is cut while ids are collected, or in a sweep: the same bits after Dask has
    connected again, and no task stays behind. A busy scheduler clears the old connection away when
    the client is back already, and forgets the client with it."""
    import asyncio

    from distributed import Client
    from distributed.batched import BatchedSend

    from eckart.clusters import tasks

    def left():
        return set(
            processes.run_on_scheduler(lambda dask_scheduler: list(map(str, dask_scheduler.tasks)))
        )

    whole = ALS(3, random_state=0, max_iter=4).fit(dd.from_pandas(ratings, npartitions=4), **HOW)
    before, calls, wait, close = left(), [], tasks.wait, BatchedSend.close

    async def close_later(self, timeout=None):
        await asyncio.sleep(1.0)
        return await close(self, timeout)

    def wait_and_cut(client, futures):
        calls.append(len(futures))
        if len(calls) == at:
            if slowly:
                monkeypatch.setattr(BatchedSend, "close", close_later)
            client.loop.add_callback(client.scheduler_comm.comm.abort)
            time.sleep(0.2)
        return wait(client, futures)

    monkeypatch.setattr(tasks, "RECONNECT", 120.0)  # on a busy machine, too
    monkeypatch.setattr(tasks, "wait", wait_and_cut)
    with Client(processes.scheduler.address):
        same_bits(
            whole,
            ALS(3, random_state=0, max_iter=4).fit(dd.from_pandas(ratings, npartitions=4), **HOW),
        )
    assert len(calls) > at
    gc.collect()
    deadline = time.time() + 20
    while left() - before and time.time() < deadline:
        time.sleep(0.2)
    assert not left() - before


SCHEDULER = """
import sys, numpy as np
import dask.dataframe as dd, pandas as pd
from distributed import Client
from eckart import ALS
if __name__ == "__main__":
    from eckart.io.models import checkpoint
    checkpoint.SECONDS = 0.0
    table = pd.read_parquet(sys.argv[2])
    with Client(sys.argv[1]) as client:
        x = dd.from_pandas(table, npartitions=4)
        model = ALS(3, random_state=0, max_iter=int(sys.argv[4]), tol=1e-12, checkpoint=sys.argv[3])
        try:
            model.fit(x, rows="user", columns="item", values="rating")
        except Exception as error:
            print(type(error).__name__, error)
            raise SystemExit(3)
        np.save(sys.argv[5], model.column_factors_)
"""


@pytest.mark.cluster
def test_a_scheduler_that_dies_gives_one_error_and_the_fit_resumes(tmp_path, ratings):
    script = tmp_path / "fit.py"
    script.write_text(SCHEDULER)
    ratings.to_parquet(tmp_path / "ratings.parquet")
    kept, port = tmp_path / "kept", 18786

    def cluster():
        how = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        alone = ["--no-dashboard"]
        scheduler = ["-m", "distributed.cli.dask_scheduler", "--port", str(port), *alone]
        worker = [
            "-m",
            "distributed.cli.dask_worker",
            f"tcp://127.0.0.1:{port}",
            "--nthreads",
            "1",
            *alone,
        ]
        made = [
            subprocess.Popen([sys.executable, *words], **how)
            for words in (scheduler, worker, worker)
        ]
        return made

    def fit(out, wait=True):
        words = [
            sys.executable,
            str(script),
            f"tcp://127.0.0.1:{port}",
            str(tmp_path / "ratings.parquet"),
            str(kept),
            "40",
            str(tmp_path / out),
        ]
        run = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        return (run, *run.communicate(timeout=240)) if wait else (run, None, None)

    started = cluster()
    try:
        time.sleep(3)
        run, _, _ = fit("never.npy", wait=False)
        while not kept.exists():
            assert run.poll() is None
            time.sleep(0.05)
        started[0].kill()
        out, _ = run.communicate(timeout=240)
        assert run.returncode == 3
        assert out.startswith(
            "ClusterError the connection to the Dask scheduler at tcp://127.0.0.1:18786 was lost"
        )
        assert out.count("\n") == 1
        assert kept.exists()
    finally:
        for process in started:
            process.kill()
            process.wait()
    started = cluster()
    try:
        time.sleep(3)
        assert fit("resumed.npy")[0].returncode == 0
        assert fit("straight.npy")[0].returncode == 0
    finally:
        for process in started:
            process.kill()
            process.wait()
    np.testing.assert_array_equal(
        np.load(tmp_path / "resumed.npy"), np.load(tmp_path / "straight.npy")
    )


@pytest.mark.cluster
@pytest.mark.timeout(3000)
def test_a_hundred_fits_with_workers_that_live_five_seconds(processes, rows, ratings):
    x, parted = (
        da.from_array(np.abs(rows), chunks=(500, 12)),
        dd.from_pandas(ratings, npartitions=4),
    )
    rng = np.random.default_rng(0)
    gaps = da.from_array(np.where(rng.random(rows.shape) < 0.1, np.nan, rows), chunks=(500, 12))
    bag = db.from_sequence(
        [" ".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), 9) + "x") for _ in range(200)],
        npartitions=4,
    )
    fits = {
        "PCA": lambda: PCA(3, random_state=0).fit(x),
        "PCA randomized": lambda: PCA(3, random_state=0, svd_solver="randomized").fit(x),
        "GaussianMixture": lambda: GaussianMixture(2, random_state=0, max_iter=8).fit(x),
        "PCA gaps": lambda: PCA(3, random_state=0, max_iter=6).fit(gaps),
        "Mixture": lambda: Mixture(2, random_state=0, max_iter=8).fit(x),
        "NMF": lambda: NMF(3, random_state=0, max_iter=8).fit(x),
        "NMF kl": lambda: NMF(3, beta_loss="kl", random_state=0, max_iter=8).fit(x),
        "NMF beta": lambda: NMF(3, beta_loss=1.5, random_state=0, max_iter=8).fit(x),
        "BayesianMF": lambda: BayesianMF(2, n_samples=3, burn_in=2, random_state=0).fit(
            parted, **HOW
        ),
        "EASE": lambda: EASE(random_state=0).fit(parted, **HOW),
        "ALS": lambda: ALS(3, random_state=0, max_iter=4).fit(parted, **HOW),
        "ALS implicit": lambda: ALS(3, random_state=0, max_iter=4, feedback="implicit").fit(
            parted, **HOW
        ),
        "PLSA": lambda: PLSA(2, random_state=0, max_iter=8).fit(bag),
        "LDA": lambda: LDA(2, random_state=0, max_iter=8).fit(bag),
        "LDA variational": lambda: LDA(
            2, random_state=0, max_iter=4, learning_method="variational"
        ).fit(bag),
        "LDA online": lambda: LDA(2, random_state=0, learning_method="online", batch_size=50).fit(
            bag
        ),
        "LinearAutoencoder": lambda: LinearAutoencoder(3, random_state=0).fit(x),
        "SVP": lambda: SVP(3, random_state=0, max_iter=3).fit(gaps),
        "SoftImpute": lambda: SoftImpute(tau=5.0, random_state=0, max_iter=3).fit(gaps),
    }
    want = {name: fit() for name, fit in fits.items()}
    slow = x.map_blocks(_slowly, meta=np.empty((0, 0)))
    codes = {name: transformed(want[name], slow) for name in ("PCA", "NMF")}
    done, longest = 0, 0.0
    with Killer(processes, 5.0) as killer:
        while done < 100:
            for name, fit in fits.items():
                start = time.monotonic()
                same_bits(want[name], fit())
                if name in codes:
                    np.testing.assert_array_equal(transformed(want[name], slow), codes[name])
                longest, done = max(longest, time.monotonic() - start), done + 1
                print(
                    f"{done} {name} {time.monotonic() - start:.1f} s, {killer.killed} killed",
                    flush=True,
                )
    print(
        f"{done} fits, the longest {longest:.0f} s; {killer.killed} workers killed, "
        f"during {dict(killer.during)}"
    )
    assert killer.killed > 20
    assert longest < 180


def _slowly(block):
    time.sleep(0.05)
    return block


def transformed(model, x):
    """Computed by Dask itself, which gives a task up after four workers died under it: asked again
    then, as its user would."""
    from distributed import KilledWorker

    while True:
        try:
            return model.transform(x).compute()
        except KilledWorker:
            time.sleep(1.0)
