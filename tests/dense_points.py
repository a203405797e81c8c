"""Points that are no answers, as dense matrices: what the numbers of certificates are computed from
by hand."""

from __future__ import annotations

import numpy as np

from eckart import Observed
from eckart.certify import stationary
from eckart.engines import engine_named
from eckart.factors import LowRank
from eckart.trace import StopReason, Trace

ENGINE = engine_named("auto", None)
N, M, K = 14, 11, 2


def traced(*values, reason=StopReason.CONVERGED):
    trace = Trace("value", reason=reason)
    for value in values:
        trace.add(value)
    return trace


class Table:
    """Some entries of a dense array, with weights, and a point: factors, biases and a mean."""

    def __init__(self, rng, positive=False):
        self.seen = rng.random((N, M)) < 0.6
        self.a = rng.poisson(2.0, (N, M)) + 1.0 if positive else rng.standard_normal((N, M)) + 0.5
        self.w = np.where(self.seen, rng.uniform(0.5, 2.0, (N, M)), 0.0)
        self.u, self.v = 0.6 * rng.standard_normal((N, K)), 0.6 * rng.standard_normal((M, K))
        self.b, self.c, self.mean = 0.3 * rng.standard_normal(N), 0.3 * rng.standard_normal(M), 0.4
        self.x = Observed.from_nan(np.where(self.seen, self.a, np.nan))
        self.counts = self.seen.sum(axis=1), self.seen.sum(axis=0)

    def placed(self, weighted=True):
        return ENGINE.put(self.x, entry_weights=self.w[self.seen] if weighted else None)

    def point(self, biases=True, loss=None):
        b, c = (self.b, self.c) if biases else (None, None)
        return stationary.RidgePoint(self.u, self.v, b, c, self.mean, loss=loss)

    def scores(self, biases=True):
        s = self.mean + self.u @ self.v.T
        return s + self.b[:, None] + self.c if biases else s


class Nuclear(Table):
    """B = U V^T with its tangent space, as dense matrices."""

    def __init__(self, rng):
        super().__init__(rng)
        self.f = LowRank(self.u, self.v, row_bias=self.b, column_bias=self.c, mean=self.mean)
        self.target = np.where(self.seen, self.a - self.mean - self.b[:, None] - self.c, 0.0)
        self.rest = np.where(self.seen, self.target - self.u @ self.v.T, 0.0)
        u, s, vt = np.linalg.svd(self.u @ self.v.T)
        self.s, self.left, self.right = s[:K], u[:, :K], vt[:K].T
        self.pu, self.pv = self.left @ self.left.T, self.right @ self.right.T

    def inside(self, z):
        return self.pu @ z + z @ self.pv - self.pu @ z @ self.pv

    def outside(self, z):
        return z - self.inside(z)

    def least(self, goal):
        """The least-norm Y on the entries with P_T Y as near to ``goal`` as can be."""
        units = np.eye(N * M)[self.seen.ravel()].reshape(-1, N, M)
        map_ = np.stack([self.inside(e).ravel() for e in units], axis=1)
        y = np.zeros((N, M))
        y[self.seen] = np.linalg.lstsq(map_, goal.ravel(), rcond=1e-12)[0]
        return y
