"""How many components: share of variance, Gavish-Donoho threshold, Minka's evidence. Each from
eigenvalues of the covariance."""

from __future__ import annotations

import numpy as np


def by_share(values: np.ndarray, total: float, share: float) -> int:
    """The smallest k whose variance is at least ``share`` of the total (scikit-learn's rule:
    strictly above)."""
    ratio = np.cumsum(values) / total if total > 0 else np.ones(len(values))
    return min(int(np.searchsorted(ratio, share, side="right")) + 1, len(values))


def marchenko_pastur_median(beta: float) -> float:
    """Median of the Marchenko-Pastur law of ratio 0 < beta <= 1 and unit noise."""
    from scipy import integrate, optimize

    low, high = (1 - np.sqrt(beta)) ** 2, (1 + np.sqrt(beta)) ** 2

    def mass(x: float) -> float:
        # with t = low + (high - low) sin^2(u) the endpoint square roots disappear
        top = np.arcsin(np.sqrt((x - low) / (high - low)))

        def density(u: float) -> float:
            t = low + (high - low) * np.sin(u) ** 2
            return (
                (high - low) ** 2
                * 2
                * np.sin(u) ** 2
                * np.cos(u) ** 2
                / (2 * np.pi * beta * max(t, 1e-300))
            )

        return integrate.quad(density, 0, top, limit=200)[0]

    return float(optimize.brentq(lambda x: mass(x) - 0.5, low, high, xtol=1e-10))


def threshold_factor(beta: float) -> float:
    """Gavish and Donoho (2014): the optimal hard threshold is this times sqrt(m) sigma for noise
    level sigma.

    >>> round(threshold_factor(1.0), 4)  # 4 / sqrt(3)
    2.3094
    """
    return float(
        np.sqrt(2 * (beta + 1) + 8 * beta / ((beta + 1) + np.sqrt(beta**2 + 14 * beta + 1)))
    )


def gavish_donoho(values: np.ndarray, rows: float, n: int, total: float | None = None) -> int:
    """k by the optimal singular value threshold for unknown noise.

    ``values`` are covariance eigenvalues, falling. With the whole spectrum the noise level is taken
    from its median; with a leading part only, from the variance that is left (``total`` minus the
    values above the threshold), iterated to a fixed point.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((500, 3)) @ rng.standard_normal((3, 50)) * 3 + rng.standard_normal((500, 50))
    >>> gavish_donoho(np.linalg.eigvalsh(np.cov(x.T))[::-1], 500, 50)
    3
    """
    if len(values) == 0 or values[0] <= 0:
        return 0
    rows = max(float(rows), 1.0)
    small, large = sorted((rows, float(n)))
    beta = small / large
    singular = np.sqrt(np.maximum(values, 0) * rows)
    if total is None or len(values) >= int(small):
        median = float(np.median(singular[: int(small)]))
        tau = threshold_factor(beta) / np.sqrt(marchenko_pastur_median(beta)) * median
        return int(np.count_nonzero(singular > max(tau, 1e-9 * singular[0])))
    k = 0
    for _ in range(100):
        noise = max(total - float(values[:k].sum()), 0.0) / max(n - k, 1)
        after = int(np.count_nonzero(singular > threshold_factor(beta) * np.sqrt(large * noise)))
        if after <= k:
            break
        k = after
    return k


def minka(values: np.ndarray, rows: int) -> int:
    """k that maximises Minka's Laplace approximation of the evidence of probabilistic PCA (2000).

    log p(D|k) = log p(U) - N/2 sum_{i<=k} log l_i - N (d-k)/2 log v + (m+k)/2 log 2 pi - 1/2 log|H|
    - k/2 log N, with l the eigenvalues, v the mean of those after k, m = dk - k(k+1)/2 the
    parameters of the subspace and H the Hessian there.
    """
    from scipy.special import gammaln

    d = len(values)
    floor = max(values[0], 0) * 1e-15
    best, choice = -np.inf, max(d - 1, 1)
    for k in range(1, d):
        if values[k - 1] <= floor:
            break
        v = max(float(values[k:].mean()), floor, np.finfo(float).tiny)
        i = np.arange(1, k + 1)
        log_prior = -k * np.log(2) + float(
            np.sum(gammaln((d - i + 1) / 2) - np.log(np.pi) * (d - i + 1) / 2)
        )
        m = d * k - k * (k + 1) / 2
        tilde = values.copy()
        tilde[k:] = v
        hessian = 0.0
        for a in range(k):
            b = np.arange(a + 1, d)
            diff = (values[a] - values[b]) * (1 / tilde[b] - 1 / tilde[a])
            hessian += float(np.sum(np.log(np.maximum(diff, np.finfo(float).tiny)) + np.log(rows)))
        evidence = (
            log_prior
            - rows / 2 * float(np.sum(np.log(values[:k])))
            - rows * (d - k) / 2 * np.log(v)
            + (m + k) / 2 * np.log(2 * np.pi)
            - hessian / 2
            - k / 2 * np.log(rows)
        )
        if evidence > best:
            best, choice = evidence, k
    return choice
