"""A ridge factorization whose codes lean on attributes: the problem, its objective, and how large
its gradient is.

    F = data term + 1/2 sum_i l_i ||u_i - A^T f_i||^2 + 1/2 sum_j m_j ||v_j - B^T g_j||^2 + 1/2 rho
    (||A||^2 + ||B||^2)

over the codes U, V and the maps A, B; l and m are zero for rows and columns without an entry, whose
codes are A^T f and B^T g. Where biases are learned, a code has one number more, beta with b = s
beta and s^2 = l2 / l2_bias: then l_i beta^2 is the ridge of b, and attributes speak for biases,
too. A row's entries see the design (v_j, s) and the offset s gamma_j. All sums over rows are inner
products of the engine; maps and their Gram matrices are small.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from eckart.certify.certificate import Certificate, Check, finite, never_rises, roundings
from eckart.certify.losses import best_thresholds
from eckart.certify.stationary import FLOOR, GRADIENT_LIMIT, RidgePoint, RidgeProblem, stopped_early
from eckart.engines.protocol import Engine, Tall
from eckart.trace import Trace


class SideMap(NamedTuple):
    """Attributes of one side inside the engine: F (n x p, a constant first), L F, L (n), and on the
    host F^T L F and rho."""

    features: Tall
    heavy: Tall
    ridge: Tall
    gram: np.ndarray
    rho: float

    @classmethod
    def of(
        cls, engine: Engine, features: np.ndarray, ridge: np.ndarray, rho: float, dtype: Any
    ) -> SideMap:
        heavy = features * ridge[:, None]
        return cls(
            engine.take(features, dtype),
            engine.take(heavy, dtype),
            engine.take(ridge, dtype),
            features.T @ heavy,
            rho,
        )

    @property
    def curvature(self) -> np.ndarray:
        """H = F^T L F + rho I."""
        return self.gram + self.rho * np.eye(len(self.gram))

    def pull(self, engine: Engine, codes: Tall) -> np.ndarray:
        """F^T L U."""
        return engine.inner(self.heavy, codes)

    def best(self, pull: np.ndarray) -> np.ndarray:
        """argmin over A of 1/2 sum l_i ||u_i - A^T f_i||^2 + 1/2 rho ||A||^2."""
        return linalg.cho_solve(linalg.cho_factor(self.curvature), pull)

    def cost(self, coefficients: np.ndarray, pull: np.ndarray) -> float:
        """The same, less 1/2 sum l_i ||u_i||^2."""
        return float(np.sum(coefficients * (0.5 * self.curvature @ coefficients - pull)))


class MappedProblem(NamedTuple):
    """The ridge problem (with rules without bias), the attributes of both sides, and s (0: no
    biases)."""

    plain: RidgeProblem
    rows: SideMap
    columns: SideMap
    stretch: float

    def design(self, engine: Engine, side: SideMap, codes: Tall) -> tuple[Tall, Tall | None]:
        """(v, s) and the offset s gamma of codes (v, gamma) of a side; the first of its attributes
        is the constant 1."""
        if not self.stretch:
            return codes, None
        last = np.zeros((codes.shape[1], 1))
        last[-1] = self.stretch
        chosen = np.diag(np.append(np.ones(len(last) - 1), 0.0))
        return engine.outer(
            codes, chosen, engine.outer(side.features[:, :1], last.T)
        ), engine.outer(codes, last)

    def penalty(
        self, engine: Engine, side: SideMap, codes: Tall, coefficients: np.ndarray
    ) -> float:
        """1/2 sum l_i ||u_i - A^T f_i||^2 + 1/2 rho ||A||^2."""
        square = float(np.trace(engine.inner(codes, codes, side.ridge)))
        return 0.5 * square + side.cost(coefficients, side.pull(engine, codes))


class MappedLook(NamedTuple):
    """Objective, data term, the data term at B = mean, the size of the gradient, and the same
    relative to the parts that cancel in it, at a point."""

    value: float
    data: float
    zero: float
    gradient: float
    slope: float


def look(p: MappedProblem, at: RidgePoint, engine: Engine) -> MappedLook:
    """One pass over the entries by rows and one by columns.

    The gradient by u_i is l_i (u_i - A^T f_i) + a0 V^T V u_i - pull_i: from the sums for l_i u_i
    alone, with h = L F A,
    ||D - h||^2 = ||D||^2 - 2 <L U, h> - 2 a0 <U V^T V, h> + 2 <pull, h> + ||h||^2. The gradient by A is H A - F^T L U.
    """
    square = size = 0.0
    a0, value, data, zero = p.plain.unobserved, 0.0, 0.0, 0.0
    sides = (
        (p.rows, p.columns, p.plain.x, p.plain.rule, at.left, at.right, at.row_map),
        (p.columns, p.rows, p.plain.x.T, p.plain.rule_t, at.right, at.left, at.column_map),
    )
    for side, others, x, rule, own, other, maps in sides:
        assert maps is not None
        design, offset = p.design(engine, others, other)
        total = None
        # the residual of the ridge problem that touches the loss here is its gradient
        if at.loss is not None:
            x, total = engine.linearised(x, at.loss, own, design, mean=at.mean, other=offset)
        seen = engine.evidence_rows(x, own, design, rule, mean=at.mean, other=offset, spread=a0)
        h, d = engine.outer(side.heavy, maps), maps.shape[1]
        ridge = np.trace(engine.inner(own, h, side.ridge))
        if a0:
            ridge += a0 * np.sum(engine.inner(own, h) * engine.inner(design, design))
        shift = float(np.trace(engine.inner(h, h)))
        square += (
            seen.sums.slope
            - 2 * ridge
            + 2 * float(np.trace(engine.inner(seen.pull[:, :d], h)))
            + shift
        )
        size += (np.sqrt(seen.sums.pull) + np.sqrt(seen.sums.push) + np.sqrt(shift)) ** 2
        pull = side.pull(engine, own)
        square += float(np.sum((side.curvature @ maps - pull) ** 2))
        size += float(np.sum(pull**2))
        value += p.penalty(engine, side, own, maps)
        data, zero = (seen.sums.value, seen.sums.zero) if total is None else (total, 0.0)
    if a0:
        data += (
            0.5
            * a0
            * float((engine.inner(at.left, at.left) * engine.inner(at.right, at.right)).sum())
        )
    gradient = float(np.sqrt(max(square, 0.0)))
    return MappedLook(
        value + data, data, zero, gradient, gradient / float(np.sqrt(size)) if size > FLOOR else 0.0
    )


def certify_mapped(
    p: MappedProblem,
    at: RidgePoint,
    engine: Engine,
    trace: Trace,
    errors: list[float] | None = None,
) -> Certificate:
    """The certificate of a factorization with attributes, from data, factors and maps; ``errors``
    on held-out entries make it a statistical one."""
    seen = look(p, at, engine)
    checks = [
        Check(
            "relative gradient",
            seen.slope,
            1.0 if errors else GRADIENT_LIMIT,
            "size of the gradient by codes and maps against the parts that cancel in it",
        ),
        finite(seen.value),
    ]
    if len(getattr(at.loss, "thresholds", ())):
        design, offset = p.design(engine, p.columns, at.right)
        threshold_sums_ = engine.threshold_sums(
            p.plain.x, at.loss, at.left, design, mean=at.mean, other=offset
        )
        checks.append(best_thresholds(threshold_sums_, errors))
    values = (
        [*trace.values, seen.value]
        if at.loss is not None and trace.reason.value != "interrupted" and not errors
        else trace.values
    )
    checks += never_rises(values, roundings(p.plain.x.dtype), seen.zero)
    facts: dict[str, Any] = {
        "objective": seen.value,
        "data term": seen.data,
        "stopped": trace.reason.value,
    }
    kind, notes = stopped_early(errors, facts)
    problem = "ridge factorization with attributes by alternating least squares"
    problem += ", implicit feedback" if p.plain.rule.alpha else ""
    problem += "" if at.loss is None else f", under the {at.loss.name} loss"
    return Certificate(problem, kind, tuple(checks), facts, tuple(notes))
