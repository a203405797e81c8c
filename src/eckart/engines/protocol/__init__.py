"""The primitives that every engine implements under the same names, and the evidence each returns.

Shapes: X is N x n, V is n x b, mean is n. ``weights`` are N row weights or None (all ones). Xc = X - 1 mean^T is never formed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from eckart.engines.protocol.windows import PairEvidence, Pieces, WindowRule
from eckart.errors import EckartError
from eckart.matrix import Counts, Dense, Matrix, Observed
from eckart.trace import Watcher, silent


class GapsFound(EckartError):
    """A matrix that was taken for complete holds NaN; the door decides what to do about it."""

    def __init__(self, row: int, column: int):
        super().__init__(f"NaN at row {row}, column {column}")
        self.row, self.column = row, column


@dataclass
class Moments:
    """Additive statistics of rows: weight = sum w, mean, and scatter = sum w (x - mean)(x - mean)^T, all in float64.

    ``merge`` is the pairwise update, so raw second moments are never subtracted. ``probe`` is a fixed vector g and ``probed`` the
    product scatter g accumulated on its own way through the data: comparing the two checks the arithmetic of ``scatter``.
    """

    rows: int
    weight: float
    mean: np.ndarray
    scatter: np.ndarray
    probe: np.ndarray
    probed: np.ndarray

    @classmethod
    def empty(cls, n: int, probe: np.ndarray) -> Moments:
        return cls(0, 0.0, np.zeros(n), np.zeros((n, n)), probe, np.zeros(n))

    def merge(self, rows: int, weight: float, mean: np.ndarray, scatter: np.ndarray, probed: np.ndarray) -> None:
        """Take in the statistics of other rows, in place."""
        if weight <= 0:
            self.rows += rows
            return
        total = self.weight + weight
        delta = mean - self.mean
        factor = self.weight * weight / total
        self.scatter += scatter
        self.probed += probed
        if factor > 0:
            self.scatter += np.outer(factor * delta, delta)
            self.probed += factor * delta * (delta @ self.probe)
        self.mean += delta * (weight / total)
        self.rows, self.weight = self.rows + rows, total

    def merge_with(self, other: Moments) -> None:
        self.merge(other.rows, other.weight, other.mean, other.scatter, other.probed)

    def probe_error(self, floor: float = 0.0) -> float:
        """||scatter g - probed|| / max(||probed||, floor): rounding only, if the statistic is right."""
        size = max(float(np.linalg.norm(self.probed)), floor)
        return float(np.linalg.norm(self.scatter @ self.probe - self.probed)) / size if size > 0 else 0.0


class ColumnMoments(NamedTuple):
    """Weight, mean and sum of squared deviations of each column."""

    rows: int
    weight: float
    mean: np.ndarray
    square: np.ndarray


class GapStatistics(NamedTuple):
    """One E step of probabilistic PCA on observed entries (see ``reduce.missing``)."""

    loglik: float
    gram: np.ndarray  # n x (k+1) x (k+1): sum over rows that observe column j of w E[(z,1)(z,1)^T]
    cross: np.ndarray  # n x (k+1): sum of w x_ij E[(z,1)]
    square: np.ndarray  # n: sum of w x_ij^2
    second: np.ndarray  # (k+1) x (k+1): sum over all rows of w E[(z,1)(z,1)^T]


class GapCodes(NamedTuple):
    """Posterior means E[z | observed], log-likelihood and squared misfit of the observed entries, per row."""

    codes: np.ndarray
    loglik: np.ndarray
    misfit: np.ndarray


class RidgeRule(NamedTuple):
    """How the rows of a factorization are penalised: l_i = l2 count_i^power for the code, bias_l2 count_i^power for the bias of row i.

    ``alpha`` > 0 is implicit feedback: entry r has weight alpha r, target 1, and its right-hand side weight is alpha r + ``shift``.
    """

    l2: float
    power: float = 0.0
    bias: bool = False
    bias_l2: float = 0.0
    nonnegative: bool = False
    alpha: float = 0.0
    shift: float = 0.0
    extra: float = 0.0

    def ridges(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ridge of every row and of its bias; ``extra`` is added to the counts (the unobserved weight of all cells of a row)."""
        scale = (np.maximum(counts, 0) + self.extra) ** self.power if self.power else np.ones(len(counts))
        floor = np.where(scale > 0, scale, 1.0)
        return self.l2 * floor, self.bias_l2 * floor


class RowSolution(NamedTuple):
    """Codes, biases or None, and the objective of all rows at this solution."""

    left: np.ndarray
    bias: np.ndarray | None
    value: float


class Evidence(NamedTuple):
    """Sums over stored entries that a certificate is made of (see ``engines.cpu.entries.evidence``); R is the negative gradient by B."""

    pull: np.ndarray  # sum_j R_ij v_j of each row
    row_sum: np.ndarray  # sum_j R_ij
    residual: np.ndarray | None  # R in row order, where it was asked for
    value: float  # the data term
    linear: float  # explicit: sum (a - mean) R
    square: float  # explicit: 1/2 sum R^2 / w; implicit: sum z^2 / 2W with z = a0 s - R, W = a0 + w
    cross: float  # implicit: sum z q / W
    constant: float  # implicit: sum q^2 / 2W - q / 2
    dots: float  # implicit: sum s^2


class Keeper(Protocol):
    """Where a long pass keeps its state between segments."""

    def load(self) -> tuple[int, dict[str, np.ndarray]] | None: ...

    def save(self, done: int, arrays: dict[str, np.ndarray]) -> None: ...


class Engine(Protocol):
    """What a chapter may ask of an engine."""

    name: str

    def put(self, matrix: Matrix) -> Matrix:
        """Place the matrix: dtype, device, blocks."""
        ...

    def moments(
        self,
        x: Dense | Counts,
        probe: np.ndarray,
        weights: np.ndarray | None = None,
        watch: Watcher = silent,
        keeper: Keeper | None = None,
    ) -> Moments:
        """Weight, mean and scatter in one pass over row blocks; raises GapsFound at the first NaN."""
        ...

    def column_moments(
        self, x: Dense | Counts, weights: np.ndarray | None = None, watch: Watcher = silent
    ) -> ColumnMoments:
        """The diagonal part of ``moments``."""
        ...

    def times(self, x: Dense | Counts, v: np.ndarray, mean: np.ndarray | None) -> np.ndarray:
        """Xc V, N x b."""
        ...

    def times_t(self, x: Dense | Counts, y: np.ndarray, mean: np.ndarray | None) -> np.ndarray:
        """Xc^T Y, n x b."""
        ...

    def gram_times(
        self,
        x: Dense | Counts,
        v: np.ndarray,
        mean: np.ndarray | None,
        weights: np.ndarray | None = None,
        implicit: bool = False,
    ) -> np.ndarray:
        """Xc^T diag(w) Xc V in one pass, n x b; ``implicit`` allows raw products, where means are not large against spreads."""
        ...

    def misfit(self, x: Dense | Counts, u: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """||xc - U U^T xc||^2 of each row, U with orthonormal columns; in float64."""
        ...

    def row_gram(self, x: Dense | Counts, mean: np.ndarray | None) -> np.ndarray:
        """Xc Xc^T, N x N, for short and wide data."""
        ...

    def orth(self, v: np.ndarray, against: np.ndarray | None = None) -> np.ndarray:
        """An orthonormal basis of the range of V minus its part in ``against``; dependent columns are dropped."""
        ...

    def inner(self, q: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Q^T W in float64 for tall thin Q and W."""
        ...

    def outer(self, q: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Q S for a tall Q and a small S."""
        ...

    def eigh_top(self, c: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k largest eigenvalues, falling, and their eigenvectors as columns."""
        ...

    def gap_statistics(
        self, x: Observed, w: np.ndarray, mean: np.ndarray, noise: float, weights: np.ndarray | None
    ) -> GapStatistics:
        """The expected complete-data statistics of x = W z + mean + noise given the observed entries."""
        ...

    def gap_codes(self, x: Observed, w: np.ndarray, mean: np.ndarray, noise: float) -> GapCodes:
        """Posterior means per row."""
        ...

    def ridge_rows(
        self,
        x: Observed,
        right: np.ndarray,
        rule: RidgeRule,
        *,
        offset: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        base: np.ndarray | None = None,
        prior: np.ndarray | None = None,
        noise: np.ndarray | None = None,
        start: np.ndarray | None = None,
        cg_steps: int = 0,
    ) -> RowSolution:
        """min over u_i, b_i of 1/2 sum_j w (a_ij - offset_j - b_i - u_i.v_j)^2 + 1/2 u^T (P + l_i I) u - h_i.u + 1/2 m_i b_i^2 for every row:
        P = ``base``, h = ``prior``; ``noise`` turns solutions into draws; ``start`` is where non-negative rows and
        conjugate gradients (``cg_steps`` > 0) begin."""
        ...

    def bias_rows(
        self, x: Observed, rule: RidgeRule, offset: np.ndarray, weights: np.ndarray | None = None
    ) -> np.ndarray:
        """b_i = sum_j w (a_ij - offset_j) / (sum_j w + m_i)."""
        ...

    def sampled(self, x: Observed, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """U V^T at the stored entries of x, in row order."""
        ...

    def evidence_rows(
        self,
        x: Observed,
        left: np.ndarray,
        right: np.ndarray,
        rule: RidgeRule,
        *,
        mean: float = 0.0,
        own: np.ndarray | None = None,
        other: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        spread: float = 0.0,
        keep: bool = False,
    ) -> Evidence:
        """Value and gradient of the data term, and what a dual bound needs, in one pass."""
        ...

    def residual_gram(
        self,
        x: Observed,
        left: np.ndarray,
        right: np.ndarray,
        v: np.ndarray,
        q: np.ndarray,
        *,
        mean: float,
        own: np.ndarray | None,
        other: np.ndarray | None,
        weights: np.ndarray | None,
    ) -> np.ndarray:
        """R^T diag(q) R V with R = w (A - mean - b 1^T - 1 c^T - U V^T) on the stored entries; R is never stored."""
        ...

    def offset_times(
        self, x: Observed, v: np.ndarray, mean: float, own: np.ndarray | None, other: np.ndarray | None
    ) -> np.ndarray:
        """(A - mean - b 1^T - 1 c^T) on the stored entries, times V."""
        ...

    def top_columns(
        self,
        left: np.ndarray,
        right: np.ndarray,
        n: int,
        offset: np.ndarray | None = None,
        excluded: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions and scores of the n best columns of each row of U V^T + offset, best first; excluded: (indptr, indices, rows)."""
        ...

    def topic_sweep(
        self,
        x: Counts,
        words: np.ndarray,
        prior: np.ndarray,
        shares: np.ndarray,
        *,
        steps: int = 1,
        tol: float = 0.0,
        collect: bool = True,
    ) -> TopicStatistics:
        """``steps`` EM updates theta_d <- (counts of d by topic + prior) / sum of every row at words = phi (n x k), the last one with the words' counts
        collected; earlier ones stop when theta_d moves by less than ``tol``. Value: log-likelihood + prior . log theta at
        the shares before the last update."""
        ...

    def topic_bayes(
        self,
        x: Counts,
        words: np.ndarray,
        prior: np.ndarray,
        gamma: np.ndarray,
        *,
        steps: int = 100,
        tol: float = 1e-3,
        collect: bool = True,
    ) -> TopicStatistics:
        """At most ``steps`` updates of q(theta_d) = Dir(gamma_d) at words = exp(E log beta), until the mean change is below ``tol``. Value: the bound
        less log Gamma(sum alpha) - sum log Gamma(alpha_z) for each row."""
        ...

    def topic_scores(
        self, x: Counts, words: np.ndarray, shares: np.ndarray, floor: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """sum_w c log max(theta_d . phi_w, floor) and sum_w c of every row."""
        ...

    def topic_chain(self, x: Counts, words: np.ndarray, shares: np.ndarray, prior: np.ndarray, seed: int) -> Any:
        """A collapsed Gibbs chain whose tokens start at draws from theta_dz phi_wz: ``sweep(alpha, average)``, ``counts()``, ``mean_counts()``,
        ``document_counts()``, ``set_prior(b)``."""
        ...

    def totals(self, x: Matrix, weights: np.ndarray | None = None) -> Totals:
        """Rows, sum w a and sum w a^2 of the stored entries; refuses a negative or infinite one, raises GapsFound at a NaN."""
        ...

    def hals_rows(
        self,
        gram: np.ndarray,
        pull: np.ndarray,
        start: np.ndarray,
        *,
        sweeps: int = 1,
        shrink: float = 0.0,
        weights: np.ndarray | None = None,
    ) -> Descent:
        """Coordinate descent on 1/2 u^T G u - p_i.u over u >= 0 for every row, from ``start``."""
        ...

    def hals_pass(
        self,
        x: Dense,
        right: np.ndarray,
        left: np.ndarray,
        gram: np.ndarray,
        l1: float,
        *,
        sweeps: int = 1,
        weights: np.ndarray | None = None,
    ) -> Pass:
        """hals_rows with p = X V - l1, and X^T D W, W^T D W of the new rows, in one pass over X."""
        ...

    def hals_seen(
        self,
        x: Observed,
        other: np.ndarray,
        start: np.ndarray,
        *,
        l1: float = 0.0,
        l2: float = 0.0,
        sweeps: int = 1,
        shrink: float = 0.0,
        entry_weights: np.ndarray | None = None,
        weights: np.ndarray | None = None,
    ) -> Descent:
        """Coordinate descent on 1/2 sum_j v_ij (a_ij - u.h_j)^2 + l1 sum u + l2/2 ||u||^2 over the observed entries of every row."""
        ...

    def kl_rows(
        self,
        x: Matrix,
        other: np.ndarray,
        start: np.ndarray,
        rule: KlRule,
        *,
        steps: int = 1,
        entry_weights: np.ndarray | None = None,
        entry_scale: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        real: int | None = None,
    ) -> Descent:
        """Multiplicative steps on sum_j v_ij (a log(a / u.h_j) - a + u.h_j) + l1 sum u + l2/2 ||u||^2 for every row; absent entries are zero in Counts,
        left out in Observed. ``entry_scale`` weighs columns. ``real``: the factors are padded already, so many of their columns are real."""
        ...

    def kl_pass(
        self,
        x: Dense,
        left: np.ndarray,
        right: np.ndarray,
        rule: KlRule,
        totals: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> Descent:
        """One multiplicative step of the columns' factor, in one pass over the rows of X, whose column sums are ``totals``."""
        ...

    def square_error(
        self, x: Dense | Counts, left: np.ndarray, right: np.ndarray, weights: np.ndarray | None = None
    ) -> float:
        """sum_i w_i ||x_i - V u_i||^2, from the residuals themselves."""
        ...

    def gaussian_statistics(
        self, x: Matrix, theta: Any, weights: np.ndarray | None = None, watch: Watcher = silent
    ) -> Any:
        """The E step of ``mixtures.Gaussians`` over all rows, missing entries integrated out: GaussianStatistics or FactorStatistics."""
        ...

    def gaussian_posteriors(self, x: Matrix, theta: Any, *, shares: bool = False, fill: bool = False) -> Any:
        """``mixtures.Posteriors`` of every row: log p, with shares of the components and expected entries where asked for."""
        ...

    def family_statistics(
        self, x: Matrix, family: Any, weights: np.ndarray, parameters: Any, row_weights: np.ndarray | None = None
    ) -> tuple[float, float, np.ndarray, Any]:
        """The E step of a mixture of any family: sum w, sum w log p, sum w q of each component, and the family's own statistics."""
        ...

    def family_posteriors(self, x: Matrix, family: Any, weights: np.ndarray, parameters: Any) -> Any:
        """``mixtures.Posteriors`` with shares."""
        ...

    def cooccur(
        self,
        ids: np.ndarray,
        pointers: np.ndarray,
        n: int,
        rule: PairRule,
        span: tuple[int, int] | None = None,
        piece: int = 2**21,
    ) -> Iterator[CountRows]:
        """Weighted counts of neighbours in the same sentence, by ranges of rows in their order: N_wv = sum over the positions p of word w and the
        distances d of weight_d [ids[p -+ d] = v] / scale. ``span``: only positions first..last are looked from; neighbours may lie outside.
        ``piece``: most entries of a range (a row may be longer)."""
        ...

    def merge_counts(self, runs: Iterator[list[CountRows]], n: int, rule: PairRule) -> Iterator[CountRows]:
        """The sum of counts of the same range of rows, range after range."""
        ...

    def glove_table(self, x: Observed, weights: np.ndarray, seed: int) -> GloveTable:
        """Entries and weights by blocks, each block in a random order."""
        ...

    def glove_step(
        self, table: GloveTable, own: np.ndarray, other: np.ndarray, rate: float, order: np.ndarray
    ) -> float:
        """An epoch of AdaGrad over all entries, the rounds in this order; ``own`` and ``other`` (see ``cpu.words.glove_kernels``) are changed. Returns
        the sum of f d^2, each before its step."""
        ...

    def glove_loss(self, table: GloveTable, own: np.ndarray, other: np.ndarray) -> float:
        """The sum of f d^2 over all entries."""
        ...

    def pair_step(
        self,
        pieces: Pieces,
        x: np.ndarray,
        y: np.ndarray,
        part: tuple[int, int],
        rule: WindowRule,
        *,
        rates: tuple[float, float],
        seed: int,
        together: bool = True,
    ) -> PairEvidence:
        """Skip-gram steps over pieces first..last: x and y (see ``cpu.words.window_kernels``) are changed, the rate falls from rates[0] to rates[1].
        ``together``: threads share x and y without locks; else the bits do not depend on their number."""
        ...


class PairRule(NamedTuple):
    """What a neighbour at distance 1, 2, ... weighs, times ``scale`` (so that weights are whole numbers where they can be), and on which sides it is looked
    for."""

    weights: tuple[float, ...]
    scale: float = 1.0
    left: bool = True
    right: bool = True


class CountRows(NamedTuple):
    """Rows ``first``, ``first`` + 1, ... of a sparse matrix: how many entries each has, and these, columns ascending."""

    first: int
    lengths: np.ndarray
    indices: np.ndarray
    data: np.ndarray


class GloveTable(NamedTuple):
    """Entries by blocks: block a strata + b, ``ends[.]`` to ``ends[. + 1]``, holds rows that are a and columns that are b modulo ``strata``."""

    rows: np.ndarray
    columns: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    ends: np.ndarray
    strata: int

    def round(self, turn: int) -> list[int]:
        """Blocks that share no row and no column."""
        return [a * self.strata + (a + turn) % self.strata for a in range(self.strata)]


def strata_of(n: int) -> int:
    """Into how many classes words are dealt: by their number only, so that a block's rows stay in cache and threads have enough of them."""
    return int(np.clip(n // 256, 1, 16))


class TopicStatistics(NamedTuple):
    """What one pass of a topic model over documents leaves: their shares theta (or gamma), the words' counts by topic (words x k, None where they were not
    wanted), the value it climbs, the tokens that this is summed over, and for variational passes sum_d E log theta_d."""

    shares: np.ndarray
    counts: np.ndarray | None
    value: float
    seen: float
    logs: np.ndarray | None = None


class Totals(NamedTuple):
    """Rows, weighted sum and weighted sum of squares of the entries."""

    rows: int
    total: float
    square: float


class Descent(NamedTuple):
    """A factor after a half sweep; the objective of its rows (without what is constant) and their squared violations of the optimality conditions before
    it, summed with the rows' weights (see ``engines.cpu.parts.kernels``)."""

    factor: np.ndarray
    value: float
    kkt: float


class Pass(NamedTuple):
    """A half sweep of the rows with X^T D W and W^T D W of the new rows."""

    rows: Descent
    cross: np.ndarray
    square: np.ndarray


class KlRule(NamedTuple):
    """Penalties of a multiplicative step; ``fast`` raises its factor to the power 1.75. A row's steps end when one moves less than a share
    ``tol``; without ``valued`` the objective is not measured."""

    l1: float = 0.0
    l2: float = 0.0
    fast: bool = False
    tol: float = 0.0
    valued: bool = True


THIN = 2**22
"""Bytes in a block for products with few columns: it stays in cache between the two halves of X^T (X V)."""
SQUARE = 2**24
"""Bytes in a block for X^T X: enough rows for the product to run at full speed."""


def block_rows(n_columns: int, itemsize: int, size: int = THIN) -> int:
    """Rows in a block of about ``size`` bytes."""
    return int(np.clip(size // max(1, n_columns * itemsize), 128, 65536))


def first_bad(block: np.ndarray, first_row: int) -> tuple[str, int, int] | None:
    """The first NaN or infinity in a block as (kind, row, column)."""
    for kind, found in (("inf", np.isinf(block)), ("nan", np.isnan(block))):
        if found.any():
            i, j = np.argwhere(found)[0]
            return kind, first_row + int(i), int(j)
    return None
