"""Low rank met at the stored entries, on a device: the same buckets of rows as ``ridge``; sums in
float64.

u_i.v_j at the stored entries of sparse rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from eckart.engines.arrays.evidence import ArrayEntries
from eckart.engines.cuda.arrays import DeviceArray
from eckart.engines.cuda.dense import entry_product
from eckart.engines.cuda.held import DeviceMatrix, EntryArrays
from eckart.engines.cuda.kernels import usable
from eckart.engines.cuda.kernels.products import entry_dots
from eckart.engines.cuda.triangles import row_sums
from eckart.engines.protocol import Evidence, EvidenceSums, RidgeRule


class DeviceEntries:
    """Low rank met at the stored entries, and the best columns of each row."""

    device: torch.device
    tensor: Any
    on_cpu: Any
    held: Any
    known: Any
    _like: Any

    def sampled(self, x: Any, left: Any, right: Any) -> Any:
        """As in ``thin``, arrays of NumPy are answered by one of NumPy; so are those of the next
        four."""
        x = self.held(x)
        return self._like(
            at_entries(x.entries, self.tensor(left, right.dtype), self.tensor(right)), left, right
        )

    def residual(self, x: Any, data: Any, left: Any, right: Any) -> tuple[Any, float]:
        x = self.held(x)
        rest = self.tensor(data) - at_entries(x.entries, self.tensor(left), self.tensor(right))
        wide = rest.double()
        return self._like(rest, data), float(wide @ wide)

    def by_columns(self, x: Any, data: Any) -> Any:
        return self._like(self.tensor(data)[self.held(x).entries.by_columns], data)

    def entry_times(self, x: Any, data: Any, v: Any) -> Any:
        return self._like(
            entry_product(self.held(x).entries, self.tensor(data, v.dtype), self.tensor(v)), v
        )

    def entry_times_t(self, x: Any, t_data: Any, y: Any) -> Any:
        return self._like(
            entry_product(self.held(x).T.entries, self.tensor(t_data, y.dtype), self.tensor(y)), y
        )

    def evidence_rows(
        self,
        x: Any,
        left: Any,
        right: Any,
        rule: RidgeRule,
        *,
        mean: float = 0.0,
        own: Any = None,
        other: Any = None,
        weights: Any = None,
        spread: float = 0.0,
    ) -> Evidence:
        x = self.held(x)
        u, v = self.tensor(left, right.dtype), self.tensor(right)
        facts = self.known(x, right.dtype, rule, mean, weights, bias=own, offset=other)
        w, y, q = facts.flat()
        s = at_entries(facts.entries, u, v)
        r = q - (s if w is None else w * s)
        pull, row_sum = entry_product(facts.entries, r, v), row_sums(facts.entries, r)
        if rule.alpha:
            assert w is not None
            sums = _implicit_sums(s.double(), r.double(), w.double(), q.double(), spread)
        else:
            wide, bare = r.double(), facts.entries.data.double() - mean
            value = 0.5 * (wide * (y - s).double()).sum()
            square = bare * bare if w is None else w.double() * bare * bare
            nothing = torch.zeros_like(value)
            sums = torch.stack(
                [value, (wide * bare).sum(), value, nothing, nothing, nothing, 0.5 * square.sum()]
            )
        ridge, bias_ridge = x.kept_ridges(rule)
        slopes = _slopes(u, pull, ridge, v, spread, rule.nonnegative)
        biases = (
            [0.0] * 4
            if own is None
            else _bias_slopes(self.tensor(own, np.float64).reshape(-1), row_sum, bias_ridge)
        )
        return Evidence(
            DeviceArray(pull), DeviceArray(row_sum), EvidenceSums(*sums.tolist(), *slopes, *biases)
        )

    def residual_gram(
        self,
        x: Any,
        left: Any,
        right: Any,
        v: Any,
        q: Any,
        rule: RidgeRule,
        *,
        mean: float = 0.0,
        own: Any = None,
        other: Any = None,
        spread: float = 0.0,
    ) -> DeviceArray:
        """R is made once for a point (kept while the same arrays come), then two products of
        entries and two of thin matrices."""
        x = self.held(x)
        u, w = self.tensor(left, right.dtype), self.tensor(right)
        r, r_t = self._residuals(x, left, right, rule, mean, own, other)
        block, scale = self.tensor(v, right.dtype), self.tensor(q, right.dtype).reshape(-1, 1)
        y = entry_product(x.entries, r, block)
        if spread:
            y = y - spread * (u @ (w.T @ block))
        y = y * scale
        out = entry_product(x.T.entries, r_t, y)
        if spread:
            out = out - spread * (w @ (u.T @ y))
        return DeviceArray(out)

    def _residuals(
        self,
        x: DeviceMatrix,
        left: Any,
        right: Any,
        rule: RidgeRule,
        mean: float,
        own: Any,
        other: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """R at the entries, in row order and in the order of columns."""
        point = (left, right, own, other)
        kept: Any = x.kept.get("residuals")
        same = (
            kept is not None
            and all(a is b for a, b in zip(kept[0], point))
            and kept[1] == (rule, mean)
        )
        if same and all(
            a is None or isinstance(a, DeviceArray) for a in point
        ):  # an array of the host may have changed inside
            return kept[2]
        facts = self.known(x, right.dtype, rule, mean, bias=own, offset=other)
        w, _, q = facts.flat()
        s = at_entries(facts.entries, self.tensor(left, right.dtype), self.tensor(right))
        r = q - (s if w is None else w * s)
        found = r, r[x.entries.by_columns]
        x.kept["residuals"] = (point, (rule, mean), found)
        return found

    top_columns = ArrayEntries.top_columns
    offset_times = ArrayEntries.offset_times
    misfit_rows = ArrayEntries.misfit_rows
    bias_rows = ArrayEntries.bias_rows
    ridge_penalty = ArrayEntries.ridge_penalty


def _implicit_sums(
    s: torch.Tensor, r: torch.Tensor, w: torch.Tensor, q: torch.Tensor, spread: float
) -> torch.Tensor:
    whole = spread + w
    # a stored zero in a matrix without weight for unobserved cells has no weight at all
    whole = torch.where(whole > 0, whole, 1.0)
    z = spread * s - r
    each = (
        0.5 * (q - 2 * q * s + w * s * s),
        torch.zeros_like(s),
        z * z / (2 * whole),
        z * q / whole,
        q * q / (2 * whole) - 0.5 * q,
        s * s,
        0.5 * q,
    )
    return torch.stack([a.sum() for a in each])


def _slopes(
    u: torch.Tensor,
    pull: torch.Tensor,
    ridge: torch.Tensor,
    v: torch.Tensor,
    spread: float,
    nonnegative: bool,
) -> list[float]:
    """Squared norms of the gradient by one's own codes and of its two parts."""
    own, got = u.double(), pull.double()
    push = own * ridge[:, None]
    if spread:
        wide = v.double()
        push = push + own @ (spread * (wide.T @ wide))
    slope = push - got
    if nonnegative:
        slope = torch.where(own > 0, slope, slope.clamp(max=0.0))
    return torch.stack([(a * a).sum() for a in (slope, got, push)]).tolist()


def _bias_slopes(bias: torch.Tensor, row_sum: torch.Tensor, ridge: torch.Tensor) -> list[float]:
    """The same by the biases, and sum_i (sum_j R_ij)^2 / m_i (infinite where a ridge is zero)."""
    push = ridge * bias
    free = ridge <= 0
    cost = torch.where(
        free, torch.where(row_sum != 0, torch.inf, 0.0), row_sum**2 / torch.where(free, 1.0, ridge)
    ).sum()
    return torch.stack(
        [((push - row_sum) ** 2).sum(), (row_sum**2).sum(), (push**2).sum(), cost]
    ).tolist()


def at_entries(entries: EntryArrays, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """u_i.v_j at every stored entry, in row order."""
    if usable(v):
        return entry_dots(entries.pieces, entries.indices, u.to(v.dtype), v)
    return at_pairs(entries.row_of, entries.indices, u, v)


def at_pairs(
    rows: torch.Tensor, columns: torch.Tensor, u: torch.Tensor, v: torch.Tensor
) -> torch.Tensor:
    """u_i.v_j of pairs of rows, some at a time."""
    out = torch.empty(len(rows), dtype=u.dtype, device=u.device)
    step = max(1, (2**26 if u.is_cuda else 2**20) // max(1, u.shape[1]))
    for a in range(0, len(out), step):
        at = slice(a, a + step)
        out[at] = (u[rows[at]] * v[columns[at]]).sum(1)
    return out
