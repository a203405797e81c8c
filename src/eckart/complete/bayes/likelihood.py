"""Likelihoods of yes/no answers, grades and counts for a Gibbs chain (6.4): s_ij = mean + b_i + c_j
+ u_i.v_j is a natural parameter, not the value itself.

probit, ordinal    a_ij is the grade between whose thresholds z_ij = s_ij + N(0, 1) falls. Given z
the model is the normal one with noise 1 (or with
                   the precisions p_i q_j of rows and columns, which are drawn as there; their
                   typical value is 1), so a draw of
                   z (truncated normals, one for each entry) and the usual draw of the factors
                   alternate (Albert and Chib 1993). Thresholds are
                   drawn with z summed out: a proposal from the normal approximation at their mode,
                   accepted by Metropolis and Hastings (after
                   Cowles 1996), which moves them as far in a step as the data allow; the first
                   stays, since a shift of all is one of the biases.
                   A yes/no answer is the grade of one threshold.
poisson            a_ij ~ Poisson(e^(s_ij)). For each row the normal approximation q of its
conditional, made at a point that depends on the
                   other side and the priors alone, is the ellipse on which an elliptical slice
                   sampler moves (Murray, Adams and MacKay 2010;
                   Nishihara, Murray and Adams 2014): exact, nothing is rejected, and nearly
                   independent draws where the approximation is good.

Attributes as features of the factors, beside who-rated-what: u_i ~ N(mu + A^T f_i + B^T x_i,
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

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from eckart.certify.stationary import RidgeProblem
from eckart.complete.bayes.chain import Draw, draw_rows
from eckart.complete.bayes.features import VAGUE, Iterative, Link, Spectral, ridge_draw
from eckart.complete.factors.alternate import AlternatingState, sweep
from eckart.complete.factors.alternate import start as begin
from eckart.complete.factors.majorise import graded, touched
from eckart.engines.protocol import Placed, RidgeRule, Tall
from eckart.errors import InputError, invalid
from eckart.matrix import Observed
from eckart.matrix_blocks import of_each_part, parts_of, with_values
from eckart.terms import Loss, Ordered, OrderedProbit, Poisson
from eckart.trace import Trace

LIKELIHOODS = ("gaussian", "probit", "ordinal", "poisson")
MODE_STEPS = 3
"""Steps towards the mode of a row, from the least squares fit of log counts: Fisher scoring is
nearly there after as many."""
SLICES = 30
"""Trials on an ellipse; each cuts the bracket, and more than ten are rare."""
CLOSE = 1e-4
"""A Newton step after which the next would be about its square: the mode is then exact to far less
than the deviation of a threshold."""
NEWTON = 12
"""Newton steps to the mode of the thresholds, from where they are; two or three are usual."""


def loss_of(name: str, x: Observed) -> Loss:
    """The loss that is the negative log-likelihood, its own parameters set by the entries."""
    if name == "poisson":
        return Poisson()
    if name == "probit":
        of_each_part(x, _yes_or_no)
        return OrderedProbit((0.0, 1.0), (0.0,))
    loss = OrderedProbit().fitted_to(x.data) if parts_of(x) is None else graded(OrderedProbit(), x)
    if not 2 <= len(loss.levels) <= MOST_GRADES:
        raise invalid(
            "likelihood",
            name,
            f"2 to {MOST_GRADES} distinct values, X has {len(loss.levels)}",
            "use likelihood='gaussian' for numbers",
        )
    return loss


def _yes_or_no(x: Observed) -> None:
    bad = np.flatnonzero((x.data != 0) & (x.data != 1))
    if len(bad):
        row = int(np.searchsorted(x.indptr, bad[0], side="right")) - 1
        raise InputError(
            f"X must hold 0 and 1 with likelihood='probit', got {x.data[bad[0]]} at row {row}, "
            f"column {x.indices[bad[0]]}. Use likelihood='ordinal' for more than two grades."
        )


def _log_counts(y: Observed) -> Observed:
    return replace(y, data=np.log(y.data + 0.5))


def _as_heavy(y: Observed) -> np.ndarray:
    """The weights a + 1/2 of log(a + 1/2)."""
    return np.exp(y.data)


MOST_GRADES = 64
"""Distinct values up to which they count as grades: a threshold between each two must be
learned."""


class Likelihood:
    """The likelihood of one chain: its loss (thresholds are part of its state) and the mean of
    s."""

    def __init__(self, loss: Loss, mean: float, first: dict[int, Placed]):
        self.loss, self.mean, self.first = loss, mean, first

    @classmethod
    def shared(
        cls,
        loss: Loss,
        mean: float,
        y: Observed,
        placed: Callable[[Observed, Any], dict[int, Placed]],
    ) -> Callable[[], Likelihood]:
        """One for each chain; what is fixed about the entries ``y`` (counts: log(a + 1/2) with the
        weight a + 1/2, where steps begin) is made once: ``placed`` lays entries and their weights
        out for every side, by the stream of its draws; weights of parts are a function of each."""
        first = {}
        if not isinstance(loss, Ordered):
            first = placed(
                with_values(y, _log_counts), _as_heavy if parts_of(y) is not None else y.data + 0.5
            )
        return lambda: cls(loss, mean, first)

    def take(self, thresholds: np.ndarray) -> None:
        """Go on from a checkpoint."""
        if isinstance(self.loss, Ordered):
            self.loss = replace(self.loss, thresholds=tuple(thresholds.tolist()))

    @property
    def thresholds(self) -> np.ndarray:
        """Of grades; none of counts."""
        return np.array(getattr(self.loss, "thresholds", ()))

    def draw(
        self,
        chain: Any,
        side: Any,
        design: Tall,
        offset: Tall,
        q: Tall | None,
        prior: Tall,
        what: int,
    ) -> Draw:
        """The factors of one side given the other, and their misfit to the latent values of
        grades."""
        e, seed = chain.engine, (chain.seed, chain.sweeps)
        here: dict[str, Any] = {"mean": self.mean, "other": offset}
        z = e.normal((*seed, what), (side.rows, design.shape[1]), np.float64)
        solve: dict[str, Any] = {
            "mean": self.mean,
            "offset": offset,
            "base": side.precision,
            "prior": prior,
        }
        rule = RidgeRule(0.0)
        if isinstance(self.loss, Ordered):
            latent = e.augmented(
                side.x,
                self.loss,
                side.factors,
                design,
                (*seed, 4 + what),
                **here,
                **steepness(e, side.precisions, q),
            )
            p = 1.0 if side.precisions is None else side.precisions
            return draw_rows(e, latent, design, offset, p, q, side.precision, prior, z)
        at = e.ridge_rows(self.first[what], design, rule, **solve).left
        for _ in range(MODE_STEPS):
            bound, _ = e.linearised(side.x, self.loss, at, design, **here)
            at = e.ridge_rows(bound, design, rule, **solve).left
        bound, _ = e.linearised(side.x, self.loss, at, design, **here)
        centre, drawn = (
            e.ridge_rows(bound, design, rule, noise=noise, **solve).left for noise in (None, z)
        )
        uniform = e.normal((*seed, 4 + what), (side.rows, SLICES + 2), np.float64)
        return Draw(
            e.slice_rows(
                side.x, self.loss, side.factors, design, at, centre, drawn, uniform, **here
            ),
            lambda: None,
        )

    def finish(self, chain: Any) -> float:
        """Thresholds, given the factors; returns the log-likelihood of an observed entry."""
        e, x, left = chain.engine, chain.rows.x, chain.rows.factors
        design, offset, q = chain._seen(chain.rows, chain.columns)
        here = {"mean": self.mean, "other": offset, **steepness(e, chain.rows.precisions, q)}
        if isinstance(self.loss, Ordered) and len(self.loss.thresholds) > 1:
            self.loss, value = drawn_thresholds(e, x, self.loss, left, design, here, chain.rng)
            return -value / max(1, x.nnz)
        return -e.loss_sums(x, self.loss, left, design, **here).value / max(1, x.nnz)


def steepness(e: Any, p: Tall | None, q: Tall | None) -> dict[str, Tall]:
    """Roots of noise precisions of rows and columns, as the primitives of losses take them; nothing
    where all are 1."""
    given = {"row_steep": p, "column_steep": q}
    return {name: e.take(np.sqrt(e.get(a))) for name, a in given.items() if a is not None}


def begin_near_mode(chain: Any, x: Placed) -> None:
    """Factors and thresholds where some sweeps of ALS under the loss lead, from a start of the
    chain's own and spread a little: counts far from their rates hold a chain that starts anywhere
    in tight steps for long."""
    e, own = chain.engine, chain.likelihood
    loss, mean, k = own.loss, own.mean, chain.rows.last.shape[1] - 1
    ridge, power = loss.ridge
    problem = RidgeProblem.of(e, x, RidgeRule(ridge, power, bias=True, bias_l2=0.3 * ridge))
    rng, ends = np.random.default_rng(chain.seed), []
    for _ in range(FIRST_STARTS):
        point, right = begin(touched(problem, loss, mean, e), k, mean, e, rng)
        state, trace = (
            AlternatingState(point._replace(right=e.take(right), loss=loss)),
            Trace("objective"),
        )
        for _ in range(FIRST_SWEEPS):
            state = sweep(problem, state, e, trace)
        ends.append((trace.values[-1], state.point))
    at, shift = min(ends, key=lambda end: end[0])[1], 0.0
    if isinstance(loss, Ordered):  # the first threshold stays: a shift of all is one of the biases
        shift = at.loss.thresholds[0] - loss.thresholds[0]
        own.loss = replace(loss, thresholds=tuple(t - shift for t in at.loss.thresholds))
    for side, factor, bias, less in (
        (chain.rows, at.left, at.row_bias, shift),
        (chain.columns, at.right, at.column_bias, 0.0),
    ):
        whole = np.column_stack([e.get(factor), np.ravel(e.get(bias)) - less]).astype(np.float64)
        side.factors = e.outer(
            side.factors, np.eye(k + 1), e.take(whole)
        )  # the random start of the chain, far smaller, is what spreads them


FIRST_SWEEPS = 10
"""Sweeps of ALS before the first draw."""
FIRST_STARTS = 3
"""Starts of these sweeps, of which the best is taken: some end where a factor serves a single row,
and a chain does not leave such a place in hundreds of draws (its rates at unseen cells are then too
large by factors of a hundred)."""


def drawn_thresholds(
    e: Any,
    x: Any,
    loss: Ordered,
    left: Tall,
    design: Tall,
    here: dict[str, Any],
    rng: np.random.Generator,
) -> tuple[Ordered, float]:
    """All thresholds but the first: a proposal and one decision. The proposal is N(mode, H^-1), or,
    by the toss of a coin, a step N(0, 2.4^2 H^-1 / K) from where they are, which also leaves places
    so far out that the first would be refused for ever. Mode and H belong to the likelihood alone.
    Returns the loss with its thresholds, and its sum over the entries."""

    def sums(at: Ordered) -> Any:
        return e.threshold_sums(x, at, left, design, **here)

    best, now = loss, sums(loss)
    start = now.value
    for _ in range(NEWTON):
        step = np.append(0.0, -np.linalg.solve(now.bend[1:, 1:], now.gradient[1:]))
        trial, length = None, 1.0
        while trial is None and length > 1e-3:
            trial, length = best.moved(length * step), length / 2
        if trial is None:
            return loss, start
        following = sums(trial)
        if not following.value <= now.value + 1e-9 * abs(now.value):
            break
        best, now = trial, following
        if np.abs(step).max() <= CLOSE:
            break
    mode, bend = np.asarray(best.thresholds)[1:], now.bend[1:, 1:]
    root = np.linalg.cholesky((bend + bend.T) / 2)
    now_at = np.asarray(loss.thresholds)[1:]
    anew, chance = rng.random() < 0.5, rng.random()
    step = np.linalg.solve(root.T, rng.standard_normal(len(mode)))
    proposal = mode + step if anew else now_at + 2.4 / np.sqrt(len(mode)) * step
    trial = replace(loss, thresholds=(loss.thresholds[0], *map(float, proposal)))
    if not np.all(np.diff(trial.thresholds) > 1e-9):
        return loss, start
    value = e.loss_sums(x, trial, left, design, **here).value

    def away(cuts: np.ndarray) -> float:
        """-log q; a step is as likely back as forth."""
        return 0.5 * float(np.sum((root.T @ (cuts - mode)) ** 2)) if anew else 0.0

    better = (start - value) + away(proposal) - away(now_at)
    return (trial, value) if np.log(max(chance, 1e-300)) < better else (loss, start)


def fold_row_modes(
    e: Any,
    x: Any,
    loss: Loss,
    mean: float,
    design: Tall,
    offset: Tall,
    q: Tall | None,
    base: np.ndarray,
    prior: Tall,
) -> Tall:
    """New rows given the columns of a draw: the mode of their conditional, by steps of the
    majorising ridge problem."""
    steep = steepness(e, None, q)
    rows, d = x.shape[0], design.shape[1]
    at = e.take(np.zeros((rows, d)))
    for _ in range(FOLD_STEPS):
        bound, _ = e.linearised(x, loss, at, design, mean=mean, other=offset, **steep)
        at = e.ridge_rows(
            bound, design, RidgeRule(0.0), mean=mean, offset=offset, base=base, prior=prior
        ).left
    return at


FOLD_STEPS = 12
"""Steps to the mode of a new row."""


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
