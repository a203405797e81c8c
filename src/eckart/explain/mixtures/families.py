"""Component families for ``Mixture``: a log density and a weighted maximum-likelihood fit, for all
components at once.

A family is any object with a ``name`` and

    log_prob(x, parameters)   log p(x_t; theta_z), rows x k, without the weights of the components
    weighted_fit(x, q)        parameters (named arrays, one slice for each component) that maximise
    sum_t q_tz log p(x_t; theta_z); q is rows x k

With ``statistics(x, q)`` (an object that can ``merge``) and ``maximise(statistics)`` too, rows are
never held together. Optional: ``check(x, first_row)`` refuses rows that it cannot explain, ``gaps =
True`` says that NaN is understood, ``draw(parameters, labels, rng)`` samples, ``n_parameters(k,
n)`` counts.
"""

from __future__ import annotations

from typing import Any

from eckart.errors import invalid
from eckart.explain.mixtures.families_gaussian import Gaussian
from eckart.parameters import Rule

FAMILY = Rule(
    "'gaussian', 'bernoulli', 'multinomial', or an object with log_prob and weighted_fit",
    lambda v: (
        isinstance(v, str)
        or all(callable(getattr(v, verb, None)) for verb in ("log_prob", "weighted_fit"))
    ),
)


def family_named(name: Any) -> Any:
    """The family of that name: "gaussian" (full, or "gaussian diag" and so on), "bernoulli" or
    "multinomial"; an object is taken as it is."""
    if isinstance(name, str):
        first, _, kind = name.partition(" ")
        if first == "gaussian":
            return Gaussian(kind or "full")
        from eckart.explain.mixtures import families_discrete as discrete

        if name in ("bernoulli", "multinomial"):
            return discrete.Bernoulli() if name == "bernoulli" else discrete.MultinomialComponents()
    elif FAMILY.fits(name):
        return name
    raise invalid("family", name, FAMILY.wanted)
