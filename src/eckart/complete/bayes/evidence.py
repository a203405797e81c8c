"""What the draws of a Bayesian factorization say of themselves: have the chains mixed, and how does
their mean fit what was observed.

Cells at random are followed through all chains (split R-hat and effective draws,
``certify.chains``), and with them the logarithm of the noise, which moves slowest.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from eckart.certify.certificate import Certificate
from eckart.certify.chains import certify_chains
from eckart.complete.bayes.posterior import Posterior
from eckart.factors import LowRank
from eckart.matrix import Observed
from eckart.matrix_blocks import some_entries
from eckart.rng import generator

PROBES = 256
"""Cells that are followed: a share of one percent of cells that has not mixed is met with
probability 1 - 0.99^256 = 92 %."""
JUDGED = 20_000
"""Entries whose fit is reported: their root mean square is then known to half a percent, and looking at
more takes as long as many sweeps."""


def certify(x: Observed, f: LowRank, posterior: Posterior) -> Certificate:
    """Mixing at random cells and of the noise, and how the posterior mean fits the observed entries
    (a random part of very many)."""
    rng = generator(0)
    i, j = rng.integers(x.shape[0], size=PROBES), rng.integers(x.shape[1], size=PROBES)
    cells = posterior.draws(f, i, j).T.reshape(posterior.chains, -1, PROBES)
    entries = (
        np.arange(x.nnz) if x.nnz <= JUDGED else np.sort(rng.choice(x.nnz, JUDGED, replace=False))
    )
    at, columns, seen = some_entries(x, entries)
    mean, spread, noise = posterior.moments(f, at, columns)
    if posterior.loss is not None and hasattr(posterior.loss, "grades"):
        seen = posterior.loss.grades()[seen.astype(np.intp)]
    residual = seen - mean
    facts = {
        "observed entries": x.nnz,
        "RMSE on observed entries": float(np.sqrt(np.mean(residual**2))),
        "noise standard deviation": float(np.sqrt(np.mean(noise))),
        "posterior standard deviation of a cell": float(np.sqrt(np.mean(spread))),
        "observed entries in their 90 % interval": float(
            np.mean(np.abs(residual) <= ndtri(0.95) * np.sqrt(spread + noise))
        ),
    }
    problem = "posterior mean of a Bayesian matrix factorization"
    # a likelihood with a noise of its own: the size of the natural parameters tells whether their
    # scale has settled
    spread_of = (
        posterior.log_noise() if posterior.loss is None else np.log(cells.var(axis=2) + 1e-300)
    )
    found = certify_chains(cells, spread_of, problem=problem, facts=facts)
    return replace(found, notes=(*found.notes, *_advice(found, x, f.k // posterior.size)))


def _advice(found: Certificate, x: Observed, k: int) -> tuple[str, ...]:
    """What to do where chains do not agree."""
    if found.holds:
        return ()
    numbers = (k + 1) * sum(x.shape)
    more = (
        f", or take fewer components: {x.nnz:,} entries do not determine {numbers:,} "
        "numbers and the noise"
        if numbers > x.nnz
        else ""
    )
    return (f"the chains do not agree yet, raise burn_in and n_samples{more}",)
