"""Attributes as features of the factors, beside who-rated-what: u_i ~ N(mu + A^T f_i + B^T x_i,
L^-1).

``AttributeLink``  A (p x d) for p attributes in groups. A coefficient of group g has the prior N(0,
(lambda_g L)^-1): with R = U - mu - X B its conditional has
                   the mean H^-1 F^T R and rows of covariance H^-1, columns of covariance L^-1, H =
                   F^T F + diag(lambda). One Cholesky factor of p x p draws
                   all of A. lambda_g ~ Gamma((p_g d)/2, tr(A_g L A_g^T)/2) under a vague prior, so
                   that a group that says nothing is switched off.
``SeveralLinks``   the links of one side one after the other, each given the others.

Reference: Simm et al. 2017 (Macau); Rendle 2012 (groups of a factorization machine).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.complete.bayes.features import VAGUE, Iterative, Link, Spectral, ridge_draw

START_STRENGTH = 10.0
"""lambda at the start: coefficients are smaller than what they explain, and the first sweeps find
how much."""


class AttributeLink(Link):
    """Attributes ``f`` (n x p) in ``groups`` (p numbers from 0 on)."""

    def __init__(self, f: np.ndarray, groups: np.ndarray, d: int):
        self.f, self.groups = np.ascontiguousarray(f, np.float64), groups
        self.gram = self.f.T @ self.f
        self.put(np.zeros((f.shape[1], d)), np.full(int(groups.max()) + 1, START_STRENGTH))

    def draw(
        self,
        rng: np.random.Generator,
        rest: np.ndarray,
        precision: np.ndarray,
        root: np.ndarray,
        w: np.ndarray | None = None,
    ) -> np.ndarray:
        """Draw A and lambda given ``rest`` = U - mu less the other links; returns F A. ``root`` is
        a square root of the precision L."""
        z = rng.standard_normal(self.coefficients.shape)
        gram, seen = (self.gram, rest) if w is None else ((w * self.f).T @ self.f, w * rest)
        self.coefficients = ridge_draw(
            gram + np.diag(self.strength[self.groups]), self.f.T @ seen, z, root
        )
        size = np.einsum("pd,pd->p", self.coefficients @ precision, self.coefficients)
        count = np.bincount(self.groups) * self.coefficients.shape[1]
        self.strength = rng.gamma(0.5 * count + VAGUE) / (
            0.5 * np.bincount(self.groups, size) + VAGUE
        )
        self.now = self._times(self.coefficients)
        return self.now

    def scatter(self) -> tuple[np.ndarray, int]:
        b = self.coefficients
        return b.T @ (self.strength[self.groups][:, None] * b), len(b)

    def _times(self, coefficients: np.ndarray) -> np.ndarray:
        return self.f @ coefficients

    def weights(self) -> np.ndarray:
        return self.coefficients

    def fresh(self) -> Any:
        other = super().fresh()
        other.strength = np.full_like(self.strength, START_STRENGTH)
        return other


class SeveralLinks(Link):
    """The parts stand in the order in which features are written: attributes first, then
    who-rated-what."""

    def __init__(self, parts: list[AttributeLink | Spectral | Iterative]):
        self.parts = parts

    @property
    def coefficients(self) -> np.ndarray:  # type: ignore[override]
        return np.concatenate([part.coefficients for part in self.parts])

    @property
    def strength(self) -> np.ndarray:  # type: ignore[override]
        return np.concatenate([np.atleast_1d(part.strength) for part in self.parts])

    @property
    def now(self) -> np.ndarray:  # type: ignore[override]
        return np.sum([part.now for part in self.parts], axis=0)

    def put(self, coefficients: np.ndarray, strength: Any) -> None:
        sizes = np.cumsum([len(part.coefficients) for part in self.parts])[:-1]
        counts = np.cumsum([np.size(part.strength) for part in self.parts])[:-1]
        for part, c, s in zip(
            self.parts, np.split(coefficients, sizes), np.split(np.asarray(strength), counts)
        ):
            part.put(c, s if isinstance(part, AttributeLink) else float(s[0]))

    def fresh(self) -> Any:
        return SeveralLinks([part.fresh() for part in self.parts])

    def scatter(self) -> tuple[np.ndarray, int]:
        found = [part.scatter() for part in self.parts]
        return np.sum([s for s, _ in found], axis=0), sum(n for _, n in found)

    def draw(
        self,
        rng: np.random.Generator,
        rest: np.ndarray,
        precision: np.ndarray,
        root: np.ndarray,
        w: np.ndarray | None = None,
    ) -> np.ndarray:
        for part in self.parts:
            others = np.sum([other.now for other in self.parts if other is not part], axis=0)
            part.draw(rng, rest - others, precision, root, w)
        return self.now

    def weights(self) -> np.ndarray:
        return np.concatenate([part.weights() for part in self.parts])
