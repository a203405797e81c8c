"""One small ridge problem for every row, on a device: ``normal_equations`` makes and solves them.

    G_i = sum_j w v_j v_j^T + P + l_i I,      r_i = sum_j q v_j + h_i,      value = 1/2 (sum_j q y -
    u.(r + rest)),   rest = r - G u

Large ranks go by conjugate gradients, where G is never formed; non-negative rows by
``nonnegative``. Rows that need the solution of least norm are the CPU engine's.

Ridge problems of rows with fewer entries than columns, solved among their entries.

With P + l I = L L^T for all rows and B = sqrt(w) V L^-T of the n entries of a row, G = L (I + B^T
B) L^T, and with K = I + B B^T = M M^T (n x n)

    u = L^-T s,     s = h' + B^T K^-1 (q' - B h'),       h' = L^-1 h,   q' = sqrt(w) y
    draws           s + z - B^T M^-T (M + I)^-1 B z,     because (I - B^T M^-T (M + I)^-1 B) times
    its transpose is (I + B^T B)^-1

so that neither G nor its factor is made: 2 n^2 k operations instead of 2 n k^2 + k^3 / 3. The root
of G^-1 that draws take is another than R^-1 with R triangular: draws are other ones from the same
distribution.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import torch

from eckart.engines.arrays.ridge import ArrayRidge
from eckart.engines.cuda.arrays import DeviceArray, all_fetched, squares
from eckart.engines.cuda.dense import entry_product
from eckart.engines.cuda.halves import Paired
from eckart.engines.cuda.held import Chunk, DeviceMatrix, padded_rows
from eckart.engines.cuda.kernels import usable
from eckart.engines.cuda.kernels.ridge import WIDEST
from eckart.engines.cuda.nonnegative import nonnegative_rows
from eckart.engines.cuda.normal_equations import (
    System,
    by_conjugate_gradients,
    drawn,
    drawn_in_float32,
    heavy_rows,
    images_by_conjugate_gradients,
    kernel_solved,
    solved,
    widened,
)
from eckart.engines.cuda.triangles import Known, Triangle
from eckart.engines.protocol import RidgeRule, RowSolution

EVEN = 8
"""Rows of a multiple of so many float32 numbers are read in whole pieces."""


class DeviceRidge:
    """One small ridge problem for every row."""

    device: torch.device
    tensor: Any
    on_cpu: Any
    held: Any

    def known(
        self,
        x: DeviceMatrix,
        dtype: Any,
        rule: RidgeRule | None = None,
        mean: float = 0.0,
        weights: Any = None,
        **given: Any,
    ) -> Known:
        """The record for the entries of a placed matrix; without ``weights`` its own are taken.
        Numbers of columns get one more, for absent entries."""
        w = x.entries.weights if weights is None else self.tensor(weights, dtype)
        flat: dict[str, Any] = dict.fromkeys(("own", "other", "bias", "offset"))
        flat |= {
            name: self.tensor(a, dtype).reshape(-1) for name, a in given.items() if a is not None
        }
        for name in ("other", "offset"):
            if flat[name] is not None:
                flat[name] = torch.nn.functional.pad(flat[name], (0, 1))
        return Known(x.entries, w, mean=float(mean), rule=rule or RidgeRule(0.0), **flat)

    def ridge_rows(
        self,
        x: Any,
        right: Any,
        rule: RidgeRule,
        *,
        mean: float = 0.0,
        offset: Any = None,
        weights: Any = None,
        own: Any = None,
        other: Any = None,
        base: np.ndarray | None = None,
        prior: Any = None,
        noise: Any = None,
        start: Any = None,
        cg_steps: int = 0,
    ) -> RowSolution:
        x = self.held(x)
        given: dict[str, Any] = {
            "offset": offset,
            "weights": weights,
            "own": own,
            "other": other,
            "base": base,
        }
        given |= {
            "mean": mean,
            "prior": prior,
            "noise": noise,
            "start": start,
            "cg_steps": cg_steps,
        }
        drawn_or_pulled = noise is not None or prior is not None
        if (
            not right.shape[1]
            or (rule.nonnegative and drawn_or_pulled)
            or (rule.l2 <= 0 and base is None and not rule.nonnegative)
        ):
            return ArrayRidge.ridge_rows(cast(Any, self), x, right, rule, **given)
        v, dtype = self.tensor(right), right.dtype
        k = v.shape[1]
        own = np.array([own]) if isinstance(own, float) else own
        facts = self.known(x, dtype, rule, mean, weights, own=own, other=other, offset=offset)
        ridge, bias_ridge = x.kept_ridges(rule)
        system = System(
            None if base is None else self.tensor(base, np.float64),
            None
            if prior is None
            else self.tensor(prior, dtype).reshape(-1, k).expand(len(ridge), k),
            None if noise is None else self.tensor(noise, dtype),
            ridge,
            bias_ridge if rule.bias else None,
        )
        start_rows: Any = None if start is None else self.tensor(start, dtype)
        if rule.nonnegative:
            return _solution(*nonnegative_rows(facts, v, system, start_rows))
        small = (
            cg_steps > 0
            and start_rows is not None
            and not rule.bias
            and prior is None
            and noise is None
        )
        if usable(v) and (k <= WIDEST if small else v.dtype == torch.float32):
            found = (
                images_by_conjugate_gradients(facts, v.contiguous(), system, start_rows, cg_steps)
                if small
                else kernel_solved(facts, v.contiguous(), system)
            )
            if found is None:
                return ArrayRidge.ridge_rows(cast(Any, self), x, right, rule, **given)
            return _solution(*found)
        facts, root = (facts, None) if rule.bias else facts.evenly()
        v = v if root is None else v * root
        for narrow in (True, False) if drawn_in_float32(facts, v, system) else (False,):
            solution = self._by_chunks(
                x, facts, root, v, system, start_rows if small else None, cg_steps, narrow
            )
            if solution is not None:
                return solution
        return ArrayRidge.ridge_rows(cast(Any, self), x, right, rule, **given)

    def _by_chunks(
        self,
        x: DeviceMatrix,
        facts: Known,
        root: torch.Tensor | None,
        v: torch.Tensor,
        system: System,
        start_rows: torch.Tensor | None,
        cg_steps: int,
        narrow: bool,
    ) -> RowSolution | None:
        """Rows by batches of about the same length, the factor multiplied by ``root``; ``narrow``
        draws in float32; from ``begun`` by conjugate gradients. None where a matrix is not positive
        definite."""
        k, biased, small = v.shape[1], system.bias_ridge is not None, start_rows is not None
        left = torch.zeros((len(system.ridge), k), dtype=v.dtype, device=self.device)
        bias = torch.zeros(len(left), dtype=v.dtype, device=self.device) if biased else None
        value = torch.zeros((), dtype=torch.float64, device=self.device)
        part: Any
        dual = None if small else Dual.of(system, k, v.dtype)
        shared = None if dual is None else dual.rows(v)
        if narrow:
            v, system, more = widened(v, -k % EVEN), system.narrow(-k % EVEN), -k % EVEN
            if dual is not None and shared is not None:
                shared, dual = widened(shared, more), dual.narrow(more)
        pairs, images = None, None
        if narrow and facts.even:
            pairs, images = (
                Paired.of(v),
                entry_product(facts.entries, facts.flat()[2].to(v.dtype), v),
            )
            images = images if root is None else images * root.to(v.dtype)
            images = images if system.prior is None else images + system.prior
        crosses = (
            None
            if pairs is None or shared is None or dual is None or dual.scale is not None
            else Paired.of(shared)
        )
        below, shared = padded_rows(v, biased), None if shared is None else padded_rows(shared)
        failed = torch.zeros((), dtype=torch.bool, device=self.device)

        def extra_bytes(length: int) -> int:
            """Numbers of a row beside what is gathered: its matrix and the factor."""
            return (
                0
                if small
                else 2 * (k + 1) ** 2
                if dual is None or not dual.takes(length, k)
                else 2 * length**2
            )

        for chunk in facts.entries.chunks(k + biased, extra_bytes):
            w, y, q = facts.at(chunk)
            w, y, q = None if w is None else w.to(v.dtype), y.to(v.dtype), q.to(v.dtype)
            if root is not None:
                y = q = y * root.to(v.dtype)
            if dual is not None and shared is not None and dual.takes(chunk.length, k):
                matrix = None if crosses is None else crosses.across(chunk)
                u, part, bad = dual.solved(chunk, shared[chunk.columns], w, y, q, matrix)
                left[chunk.rows], failed, value = (
                    u[:, :k].to(left.dtype),
                    failed | bad,
                    value + part,
                )
                continue
            if pairs is not None and images is not None:
                u, part, bad = drawn(
                    chunk, pairs.down(chunk, system.base, system.ridge), images[chunk.rows], system
                )
                left[chunk.rows], failed = u[:, :k].to(left.dtype), failed | bad
                value += 0.5 * (q * y).sum(dtype=torch.float64) - part
                continue
            gathered = below[chunk.columns]
            if start_rows is not None:
                u, part = by_conjugate_gradients(
                    chunk, gathered, w, y, q, system, start_rows[chunk.rows], cg_steps
                )
                left[chunk.rows] = u
            else:
                found = solved(chunk, gathered, w, y, q, system)
                if found is None:
                    return None
                left[chunk.rows], part = found[0][:, :k].to(left.dtype), found[2]
                if bias is not None:
                    assert found[1] is not None
                    bias[chunk.rows] = found[1]
            value += part
        if system.prior is not None or system.noise is not None:
            empty = x.entries.empty
            if len(empty):
                u, part = system.of_empty(empty, v.shape[1], left.dtype)
                left[empty], value = u[:, :k], value + part
        bad, total = all_fetched(failed, value)
        return (
            None
            if bad
            else RowSolution(
                DeviceArray(left), None if bias is None else DeviceArray(bias), float(total)
            )
        )


def _solution(left: torch.Tensor, bias: torch.Tensor | None, value: torch.Tensor) -> RowSolution:
    return RowSolution(DeviceArray(left), None if bias is None else DeviceArray(bias), float(value))


FROM = 128
"""Columns from which a row with few entries goes this way: below, its matrix is small enough for
one program."""
SHARE = 0.75
"""Entries for each column up to which it costs less: operations are equal at 1, and the steps
around them are fewer at n x n."""


class Dual(NamedTuple):
    """L^-1 of what all rows share, h' of every row (or None) and the noise (or None); ``scale`` is
    sqrt(1 / l_i) where rows share nothing but I."""

    inverse: torch.Tensor | None
    scale: torch.Tensor | None
    prior: torch.Tensor | None
    noise: torch.Tensor | None

    @classmethod
    def of(cls, system: System, k: int, dtype: torch.dtype) -> Dual | None:
        """None where the ridges differ beside a matrix, where there is a bias, or where the columns
        are few."""
        if (
            k < FROM
            or dtype != torch.float64
            or system.bias_ridge is not None
            or not len(system.ridge)
        ):
            return None
        if system.base is None:
            scale = system.ridge.rsqrt()
            if not bool(torch.isfinite(scale).all()):
                return None
            return cls(
                None,
                scale,
                None if system.prior is None else system.prior * scale[:, None],
                system.noise,
            )
        low, high = torch.aminmax(system.ridge)
        eye = torch.eye(k, dtype=dtype, device=system.base.device)
        lower, info = torch.linalg.cholesky_ex(system.base + low * eye)
        if bool((low != high) | (info != 0)):
            return None
        inverse = torch.linalg.solve_triangular(lower, eye, upper=False)
        prior = system.prior
        if prior is not None:
            one = prior.stride(0) == 0  # one row for all
            prior = ((prior[:1] if one else prior) @ inverse.T).expand(len(prior), k)
        return cls(inverse, None, prior, system.noise)

    def takes(self, length: int, k: int) -> bool:
        return length <= SHARE * k

    def rows(self, v: torch.Tensor) -> torch.Tensor:
        """V L^-T, whose rows are gathered."""
        return v if self.inverse is None else v @ self.inverse.T

    def narrow(self, more: int) -> Dual:
        """In float32, with columns of zeros (``System.narrow``)."""
        scale, prior, noise = (
            None if self.scale is None else self.scale.float(),
            self.prior,
            self.noise,
        )
        return self._replace(
            scale=scale,
            prior=None if prior is None else widened(prior, more),
            noise=None if noise is None else widened(noise, more),
        )

    def back(self, s: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """L^-T s."""
        if self.inverse is None:
            return s * self.scale[rows][:, None]  # type: ignore[index]
        return s[:, : len(self.inverse)].to(self.inverse.dtype) @ self.inverse

    def solved(
        self,
        chunk: Chunk,
        gathered: torch.Tensor,
        w: torch.Tensor | None,
        y: torch.Tensor,
        q: torch.Tensor,
        matrix: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Codes, the sum of the values (without the noise), and whether a matrix failed; ``matrix``
        is K where it is known."""
        constant = (q * y).sum(dtype=torch.float64)
        b, pulls = heavy_rows(gathered, w, q)
        if self.scale is not None:
            b = b * self.scale[chunk.rows][:, None, None]
        if matrix is None:
            matrix = squares(b, across=True)
            matrix.diagonal(dim1=1, dim2=2).add_(1.0)
        lower = Triangle.of(matrix)
        s = b.new_zeros(len(b), b.shape[2]) if self.prior is None else self.prior[chunk.rows]
        noise = None if self.noise is None else self.noise[chunk.rows]
        known = torch.stack([s] if noise is None else [s, noise], 2)
        seen = torch.bmm(b, known)
        right = lower.forward(pulls[:, :, None] - seen[:, :, :1])
        if noise is not None:
            right = torch.cat([right, -lower.plus(1.0).forward(seen[:, :, 1:])], 2)
        known = known + torch.bmm(b.mT, lower.backward(right))
        u = known[:, :, 0]
        image = torch.bmm(b, known[:, :, :1])[:, :, 0]
        pairs = ((2, image, pulls), (2, u, s), (-1, u, u), (-1, image, image))
        gain = sum(sign * (one * two).sum(dtype=torch.float64) for sign, one, two in pairs)
        return self.back(known.sum(2), chunk.rows), 0.5 * (constant - gain), lower.failed()
