"""Who-rated-what as features of the factors: u_i ~ N(mu + B^T x_i, L^-1), x_i = 1/sqrt(|N(i)|) on
the columns N(i) that row i observes.

This is SVD++ done the Bayesian way (Macau's link matrix on implicit features). B has the prior N(0,
(lambda L)^-1) for each feature and is drawn given U; with R = U - mu its conditional has mean (X^T
X + lambda I)^-1 X^T R. Two ways to draw it, the same distribution:

``Spectral``  X = A S Q^T once. In the coordinates C = Q^T B the features are uncorrelated: row r of
C is drawn from
              N(s_r (A^T R)_r / (s_r^2 + lambda), ((s_r^2 + lambda) L)^-1). Directions outside X
              have no say in the data and are integrated out; of
              very many the leading ones are taken for all.
``Iterative`` (X^T X + lambda I) B = X^T (R + E1) + sqrt(lambda) E2 with rows of E1, E2 from N(0,
L^-1), by conjugate gradients: B then has the right mean
              and covariance. For more than 4000 features on the shorter side.

Rows whose priors have weights w_i (``tails="heavy"``) enter with them: X^T W X and X^T W R, whose
directions are no longer uncorrelated.

lambda has a vague Gamma prior and is drawn given B: Gamma((r d)/2, tr(B L B^T)/2). Reference: Simm
et al. 2017 (Macau); Koren 2008 (SVD++).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
from scipy import linalg, sparse

from eckart.decompositions import eigh
from eckart.matrix import Observed

DENSE_LIMIT = 4000
"""Rows or columns, whichever are fewer, whose Gram matrix is decomposed once: 128 MB, and some
seconds; beyond, systems are solved by conjugate gradients."""
DIRECTIONS, SHARE = 100, 8
"""Leading directions of X that have coefficients: so many, and an eighth of all where that is more.
On held-out entries of MovieLens-100K (943 directions) 50, 100, 200, 400 and all of them had errors
of 0.8676, 0.8670, 0.8673, 0.8674 and 0.8672: nothing between them; a sweep with all takes 1.5 times
as long."""
VAGUE = 1e-3
"""Shape and rate of the prior of the coefficients' precision: two thousandths of a coefficient."""
TOLERANCE, MAX_STEPS = 1e-5, 200
"""Relative residual at which a draw by conjugate gradients counts as exact (far below its own
randomness), and steps at the most."""


def pattern(x: Observed) -> Any:
    """X as compressed rows: which columns each row observes, each row of length one."""
    counts = x.row_counts()
    values = np.repeat(1.0 / np.sqrt(np.maximum(counts, 1)), counts)
    return sparse.csr_array((values, x.indices, x.indptr), shape=x.shape)


def link_of(x: Observed, d: int, limit: int = DENSE_LIMIT) -> Spectral | Iterative:
    """The features of the rows of ``x`` for factors of ``d`` columns."""
    return Spectral(pattern(x), d) if min(x.shape) <= limit else Iterative(pattern(x), d)


class Link(ABC):
    """B in some coordinates (``coefficients``, r x d), its precision ``strength`` lambda, ``now`` =
    X B, and what Wishart and prior need of them."""

    coefficients: np.ndarray
    strength: Any
    now: np.ndarray
    _times: Callable[[np.ndarray], np.ndarray]
    """X B."""

    def put(self, coefficients: np.ndarray, strength: Any) -> None:
        """Take over a state."""
        self.coefficients, self.strength, self.now = (
            coefficients,
            strength,
            self._times(coefficients),
        )

    @abstractmethod
    def draw(
        self,
        rng: np.random.Generator,
        rest: np.ndarray,
        precision: np.ndarray,
        root: np.ndarray,
        w: np.ndarray | None = None,
    ) -> np.ndarray:
        """Draw the coefficients and lambda given ``rest`` = U - mu; returns X B. ``root`` is a
        square root of the precision L, root root^T = L; ``w`` are weights of rows (n x 1)."""

    @abstractmethod
    def weights(self) -> np.ndarray:
        """B itself, one row for each feature."""

    def fresh(self) -> Any:
        """The same features for another chain: what is fixed is shared, what is drawn starts
        anew."""
        other = copy(self)
        other.put(np.zeros_like(self.coefficients), 1.0)
        return other

    def _learn_strength(self, rng: np.random.Generator, precision: np.ndarray) -> None:
        b = self.coefficients
        misfit = float(np.sum((b @ precision) * b))
        self.strength = float(rng.gamma(0.5 * b.size + VAGUE) / (0.5 * misfit + VAGUE))

    def scatter(self) -> tuple[np.ndarray, int]:
        """lambda B^T B and the number of rows in it: the share of B in the posterior of the
        precision L."""
        b = self.coefficients
        return self.strength * (b.T @ b), len(b)


class Spectral(Link):
    """Features through the singular value decomposition of X."""

    def __init__(self, x: Any, d: int):
        n, f = x.shape
        values, a = eigh((x @ x.T if n <= f else x.T @ x).toarray())
        keep = values > 1e-9 * max(values[-1], 1e-300)
        most = max(DIRECTIONS, int(np.count_nonzero(keep)) // SHARE)
        keep[: max(0, len(values) - most)] = False
        if n <= f:
            self.square, scaled = values[keep], a[:, keep] * np.sqrt(values[keep])
            self.axes = (x.T @ a[:, keep]) / np.sqrt(values[keep])
        else:
            self.square, self.axes = values[keep], a[:, keep]
            scaled = x @ self.axes
        self.scaled = np.ascontiguousarray(scaled)
        self.put(np.zeros((len(self.square), d)), 1.0)

    def draw(
        self,
        rng: np.random.Generator,
        rest: np.ndarray,
        precision: np.ndarray,
        root: np.ndarray,
        w: np.ndarray | None = None,
    ) -> np.ndarray:
        z = rng.standard_normal(self.coefficients.shape)
        if w is not None:
            gram = (w * self.scaled).T @ self.scaled + self.strength * np.eye(len(self.square))
            self.coefficients = ridge_draw(gram, self.scaled.T @ (w * rest), z, root)
        else:
            h = self.square + self.strength
            noise = linalg.solve(root.T, z.T).T
            mean = (self.scaled.T @ rest) / h[:, None]
            self.coefficients = mean + noise / np.sqrt(h)[:, None]
        self._learn_strength(rng, precision)
        self.now = self._times(self.coefficients)
        return self.now

    def _times(self, coefficients: np.ndarray) -> np.ndarray:
        return self.scaled @ coefficients

    def weights(self) -> np.ndarray:
        return self.axes @ self.coefficients


class Iterative(Link):
    """Features through products with the sparse X only."""

    def __init__(self, x: Any, d: int):
        self.x, self.xt = x, x.T.tocsr()
        self.diagonal = np.bincount(x.indices, np.square(x.data), minlength=x.shape[1])
        self.put(np.zeros((x.shape[1], d)), 1.0)

    def draw(
        self,
        rng: np.random.Generator,
        rest: np.ndarray,
        precision: np.ndarray,
        root: np.ndarray,
        w: np.ndarray | None = None,
    ) -> np.ndarray:
        z = rng.standard_normal((len(rest) + len(self.coefficients), rest.shape[1]))
        e = linalg.solve(root.T, z.T).T
        seen = rest + e[: len(rest)] if w is None else w * rest + np.sqrt(w) * e[: len(rest)]
        self.coefficients = self._solve(self.xt @ seen + np.sqrt(self.strength) * e[len(rest) :], w)
        self._learn_strength(rng, precision)
        self.now = self._times(self.coefficients)
        return self.now

    def _solve(self, right: np.ndarray, w: np.ndarray | None = None) -> np.ndarray:
        """(X^T W X + lambda I) B = right, all columns at once, preconditioned by the diagonal, from
        the last B."""
        scale = (1.0 / (self.diagonal + self.strength))[:, None]

        def times(b: np.ndarray) -> np.ndarray:
            seen = self.x @ b
            return self.xt @ (seen if w is None else w * seen) + self.strength * b

        b = self.coefficients.copy()
        r = right - times(b)
        y = scale * r
        p, gamma = y.copy(), np.sum(r * y, axis=0)
        goal = TOLERANCE**2 * np.sum(right * scale * right, axis=0)
        for _ in range(MAX_STEPS):
            if (gamma <= goal).all():
                break
            ap = times(p)
            curve = np.sum(p * ap, axis=0)
            step = np.where(curve > 0, gamma / np.where(curve > 0, curve, 1), 0)
            b += step * p
            r -= step * ap
            y = scale * r
            before, gamma = gamma, np.sum(r * y, axis=0)
            p = y + np.where(before > 0, gamma / np.where(before > 0, before, 1), 0) * p
        return b

    def _times(self, coefficients: np.ndarray) -> np.ndarray:
        return self.x @ coefficients

    def weights(self) -> np.ndarray:
        return self.coefficients


def ridge_draw(gram: np.ndarray, right: np.ndarray, z: np.ndarray, root: np.ndarray) -> np.ndarray:
    """H^-1 right + H^-1/2 z root^-1, H the ``gram``: rows have the covariance H^-1, columns (root
    root^T)^-1 = L^-1."""
    upper = linalg.cholesky(gram, check_finite=False)
    noise = linalg.solve(root.T, linalg.solve_triangular(upper, z, check_finite=False).T).T
    return linalg.cho_solve((upper, False), right, check_finite=False) + noise
