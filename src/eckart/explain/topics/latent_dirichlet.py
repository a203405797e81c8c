"""LDA under scikit-learn's name, with its defaults and its score, so that changing the import is
enough.

The topics are those of ``LDA(learning_method="batch")`` or ``"online"`` with fixed priors 1 /
n_components. Scores are the variational bound

    F = E log p(w, theta, beta) - E log q(theta, beta),      perplexity = exp(-F / tokens)

of ``lda_variational``, in place of document completion.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

import numpy as np

from eckart.errors import FileError
from eckart.explain.topics.lda import LDA
from eckart.explain.topics.lda_variational import VariationalProblem, topics_bound
from eckart.explain.topics.priors import Priors
from eckart.fit import Fit, fitted
from eckart.parameters import flag, number, optional, param, whole


@dataclass(eq=False, repr=False)
class LatentDirichletAllocation(LDA):
    """Latent Dirichlet allocation with scikit-learn's parameters, defaults and scores; ``LDA`` has
    better defaults.

    Parameters are those of ``LDA``; these begin elsewhere: ``learning_method="batch"``,
    ``max_iter=10`` passes without a tolerance, priors of 1 / n_components that are not learned,
    ``batch_size=128``, ``total_samples=1e6``.

    Attributes are those of ``LDA``; ``bound_`` is the perplexity of the training documents by the
    variational bound.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = np.vstack([rng.multinomial(40, p, 50) for p in ([0.4, 0.4, 0.1, 0.1], [0.1, 0.1, 0.4, 0.4])])
    >>> model = LatentDirichletAllocation(2, random_state=0).fit(x)
    >>> model.get_feature_names_out().tolist(), bool(np.isclose(model.bound_, model.perplexity(x)))
    (['latentdirichletallocation0', 'latentdirichletallocation1'], True)

    References
    ----------
    M. Hoffman, D. Blei and F. Bach, "Online learning for latent Dirichlet allocation", NIPS (2010).
    """

    n_components: int = param(10, whole(1))
    _: KW_ONLY
    doc_topic_prior: Any = param(None)
    topic_word_prior: Any = param(None)
    learning_method: Literal["batch", "online"] = param("batch")
    max_iter: int = param(10, whole(0))
    batch_size: int = param(128, whole(1))
    total_samples: float | None = param(1e6, optional(number(0)))
    tol: float = param(0.0, number(0))
    evaluate_every: int = param(-1, whole(-(2**31)))
    warm_start: bool = param(False, flag())

    _perplexity: float = field(init=False)

    def fit(self, X: Any, y: Any = None) -> LatentDirichletAllocation:
        """Fit to documents x words."""
        super().fit(X)
        self._perplexity = self.perplexity(X)
        return self

    def score(self, X: Any, y: Any = None) -> float:
        """F over the documents of X, each settled at the fitted topics: higher is better."""
        return self._bound(X, sub_sampling=False)[0]

    def perplexity(self, X: Any, sub_sampling: bool = False) -> float:
        """exp(-F / tokens); with ``sub_sampling`` the documents stand for ``total_samples`` of
        their kind."""
        bound, tokens = self._bound(X, sub_sampling)
        return float(np.exp(-bound / tokens)) if tokens > 0 else 1.0

    @fitted
    def bound_(self) -> float:
        """Perplexity of the training documents."""
        self._fitted("bound_")
        if "_perplexity" not in vars(self):
            raise AttributeError(
                "bound_ is absent: the model was loaded from a file or fitted in parts; "
                "call perplexity(X)"
            )
        return self._perplexity

    def _store(self, fit: Fit, arrays: dict[str, np.ndarray]) -> None:
        if not (fit.factors.counts > 0).all():
            raise FileError(
                "counts must hold numbers > 0, those of a Dirichlet distribution for each topic"
            )
        super()._store(fit, arrays)

    def _bound(self, X: Any, sub_sampling: bool) -> tuple[float, float]:
        """F and the tokens that it is of."""
        x, engine, t = self._documents(X), self._engine(), self._topics()
        priors = (
            Priors(t.prior, 0.0, self._eta, False, False)
            if np.ndim(self._eta)
            else Priors(t.prior, self._eta, None, False, False)
        )
        with engine.at_work():
            problem = VariationalProblem(
                engine.put(x),
                priors,
                engine,
                int(self.max_doc_update_iter),
                float(self.mean_change_tol),
            )
            state = problem.begin(np.ascontiguousarray(t.counts.T, np.float64))
            bound = problem.expect(state).bound
        topics = topics_bound(state.beliefs, priors)
        many = float(self.total_samples or x.shape[0]) / max(x.shape[0], 1) if sub_sampling else 1.0
        return (bound - topics) * many + topics, float(problem.totals.sum()) * many
