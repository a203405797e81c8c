"""Have the chains of a sampler mixed, and how many independent draws are they worth?

For m chains of n draws of a quantity, with W the mean of the variances within a chain and B/n the
variance of the chains' means,

    var+ = (n - 1)/n W + B/n        R-hat = sqrt(var+ / W)

Each chain is cut in halves first (split R-hat), so that one chain that still drifts is found too.
R-hat is 1 when every half tells the same story.

The effective sample size is  m n / tau  with  tau = 1 + 2 sum_t rho_t,  rho_t = 1 - (W - mean_c
acov_c(t)) / var+,  summed over Geyer's initial monotone
sequence: pairs rho_2t + rho_2t+1 while they are positive, never growing. The mean of the draws then
has the standard error
sd / sqrt(ess): a Monte Carlo error of 0.1 posterior standard deviations at ess = 100.

Gelman and Rubin 1992; Geyer 1992; Vehtari, Gelman, Simpson, Carpenter and Buerkner 2021.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.certify.certificate import BEWARE, Certificate, Check

RHAT_LIMIT = 1.1
"""Gelman and Rubin's limit: the means of the halves then stray by 0.46 deviations, since R-hat^2 is
about 1 + their variance in such units."""
ERROR_LIMIT = 0.2
"""Posterior deviations, from 25 independent draws on: their mean square adds 4 % to that of a
prediction that misses by one deviation."""
NOISE_APART = 0.2
"""By how much the logarithm of the noise variance may stray from one half to another, in standard
deviations of their means: intervals are then a tenth wider or narrower, and those that promise 90 %
hold 86 to 93 %."""
MONTE_CARLO = "Monte Carlo error"
SHORTEST = 8
"""Draws a chain must have for its halves to say anything."""


def split_rhat(draws: np.ndarray) -> np.ndarray:
    """Split R-hat of each quantity; ``draws`` is chains x draws x ..., the result has the trailing
    shape. Infinite for fewer than 4 draws.

    >>> float(split_rhat(np.array([[1.0, -1.0, 1.0, -1.0, 1.0, -1.0]])).round(3))
    0.913
    """
    x = _halves(np.asarray(draws, np.float64))
    n = x.shape[1]
    if n < 2:
        return np.full(x.shape[2:], np.inf)
    within = x.var(axis=1, ddof=1).mean(axis=0)
    between = x.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sqrt((n - 1) / n + between / within)
    return np.where(within > 0, ratio, np.where(between > 0, np.inf, 1.0))


def ess(draws: np.ndarray) -> np.ndarray:
    """Effective sample size of each quantity; ``draws`` is chains x draws x .... Zero for fewer
    than 4 draws a chain.

    A quantity that never moves counts as known: its size is that of the whole sample.
    """
    x = np.asarray(draws, np.float64)
    m, n = x.shape[:2]
    if n < 4:
        return np.zeros(x.shape[2:])
    covariance = _autocovariance(x).mean(axis=0)
    within = covariance[0] * n / (n - 1)
    between = x.mean(axis=1).var(axis=0, ddof=1) if m > 1 else np.zeros(x.shape[2:])
    total = within * (n - 1) / n + between
    moves = total > 0
    rho = 1.0 - (within - covariance * n / (n - 1)) / np.where(moves, total, 1.0)
    rho[0] = 1.0
    pairs = rho[: n - n % 2].reshape(n // 2, 2, *x.shape[2:]).sum(axis=1)
    positive = np.logical_and.accumulate(pairs > 0, axis=0)
    tau = 2.0 * np.where(positive, np.minimum.accumulate(pairs, axis=0), 0.0).sum(axis=0) - 1.0
    # antithetic chains may be worth more than their draws, but not without bound
    return np.where(moves, m * n / np.maximum(tau, 1.0 / np.log10(m * n)), float(m * n))


def certify_chains(
    predictions: np.ndarray,
    noise: np.ndarray,
    *,
    problem: str,
    facts: dict[str, Any] | None = None,
) -> Certificate:
    """Mixing of a sampler, from chains x draws x cells of predictions and chains x draws of the
    logarithm of the noise variance.

    The checks look at predictions, at the cell that is worse than 95 % of the cells. The noise
    moves slowest of all and is no answer that anybody asked for: its level trades places with
    factors that explain as much, while all cells stay where they are. So it warns, in the first
    line where intervals would be others, and decides nothing.
    """
    chains, n = predictions.shape[:2]
    rhat, size = split_rhat(predictions), ess(predictions)
    worst = float(np.quantile(rhat, 0.95, method="higher"))
    few = float(np.quantile(size, 0.05, method="lower"))
    checks = (
        Check(
            "split R-hat",
            worst,
            RHAT_LIMIT,
            "do the halves of all chains predict the same? (95 % of cells)",
        ),
        Check(
            MONTE_CARLO,
            1.0 / np.sqrt(few) if few > 0 else np.inf,
            ERROR_LIMIT,
            "error of a predicted mean in posterior standard deviations (95 % of cells)",
        ),
        Check(
            "missing draws",
            max(0, SHORTEST - n),
            0,
            f"draws a chain lacks of {SHORTEST}, the fewest that can be judged",
        ),
    )
    measured = {
        "chains": chains,
        "samples": chains * n,
        "effective samples": float(np.median(size)),
        "effective samples of noise": float(ess(noise)),
        "split R-hat of noise": float(split_rhat(noise)),
        **(facts or {}),
    }
    notes = (
        ()
        if chains > 1
        else ("one chain only: that all chains agree was not tested; use n_chains >= 2",)
    )
    return Certificate(
        problem,
        "statistical",
        checks,
        measured,
        (*notes, *_noise_note(noise, measured["split R-hat of noise"])),
    )


def _noise_note(noise: np.ndarray, rhat: float) -> tuple[str, ...]:
    """What to know of a noise that still moves."""
    if rhat <= RHAT_LIMIT or noise.shape[1] < SHORTEST:
        return ()
    apart = float(_halves(np.asarray(noise, np.float64)).mean(axis=1).std(ddof=1))
    wide = 100 * np.expm1(apart / 2)
    begin = BEWARE if apart > NOISE_APART else ""
    words = (
        f"the chains differ on the noise (split R-hat {rhat:.3g}), which makes intervals "
        f"{wide:.2g} % wider or narrower"
    )
    return (f"{begin}{words}; raise burn_in and n_samples",)


def _halves(x: np.ndarray) -> np.ndarray:
    """Each chain cut in two halves of equal length (the middle draw of an odd number is left
    out)."""
    n = x.shape[1] // 2
    return np.concatenate([x[:, :n], x[:, x.shape[1] - n :]])


def _autocovariance(x: np.ndarray) -> np.ndarray:
    """1/n sum_t (x_t - mean)(x_t+s - mean) of each chain and quantity at all lags s, by FFT."""
    n = x.shape[1]
    spectrum = np.fft.rfft(x - x.mean(axis=1, keepdims=True), 2 * n, axis=1)
    return np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :n] / n
