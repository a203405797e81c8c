"""
A worker is lost, the answer is not
===================================

PCA of a Dask array on a small cluster of processes, one of which is killed while the fit runs. The
partitions it held are read again; the components are the same to the last bit.
"""

import os
import signal
import threading

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from dask.distributed import Client, LocalCluster

from eckart import PCA


def main():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((20_000, 5)) * [5, 4, 3, 2, 1] @ rng.standard_normal(
        (5, 40)
    ) + rng.standard_normal((20_000, 40))
    x = da.from_array(rows, chunks=(2_000, 40))
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        Client(cluster),
    ):
        calm = PCA(5, svd_solver="randomized", random_state=0).fit(x)
        victim = next(iter(cluster.workers.values())).pid
        # in the middle of the next fit
        threading.Timer(0.1, os.kill, (victim, signal.SIGKILL)).start()
        fit = PCA(5, svd_solver="randomized", random_state=0).fit(x)
    same = bool((fit.components_ == calm.components_).all())
    print(f"partitions {x.npartitions}, killed 1 of 2 workers, the same bits: {same}")
    print(f"certificate holds: {fit.certificate_.holds}")
    fig, ax = plt.subplots(figsize=(6, 3))
    ax.bar(range(1, 6), calm.explained_variance_ratio_, color="0.8", label="no worker lost")
    ax.plot(range(1, 6), fit.explained_variance_ratio_, "o", color="C3", label="one worker killed")
    ax.set(xlabel="component", ylabel="share of the variance")
    ax.legend(frameon=False)
    fig.tight_layout()
    plt.show()


if __name__ == "__main__":
    main()
