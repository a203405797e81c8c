"""Documents under a topic model on a device: theta by buckets of documents, the words' counts by
buckets of words.

    s_dw = theta_d . phi_w,      r_dw = c_dw / s_dw,      theta_dz <- theta_dz sum_w r_dw phi_wz +
    prior,      n_wz = phi_wz sum_d r_dw theta_dz

The second sum runs over the columns' view, with r carried over in the order of columns: nothing is
added by several threads at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from eckart.engines.arrays.topics import ArrayTopics
from eckart.engines.cuda.arrays import DeviceArray, all_fetched, torch_dtype
from eckart.engines.cuda.dense import entry_product
from eckart.engines.cuda.held import Chunk, DeviceMatrix, padded_rows
from eckart.engines.cuda.kernels import usable
from eckart.engines.cuda.kernels.topics import folded, swept
from eckart.engines.protocol import TopicStatistics


class DeviceTopics(ArrayTopics):
    """Documents under a topic model."""

    device: torch.device
    tensor: Any
    on_cpu: Any
    held: Any
    twins: Any

    def topic_sweep(
        self,
        x: Any,
        words: Any,
        prior: np.ndarray,
        shares: Any,
        *,
        steps: int = 1,
        tol: float = 0.0,
    ) -> tuple[Any, TopicStatistics]:
        phi = self.tensor(words)
        if not usable(phi):
            return super().topic_sweep(x, words, prior, shares, steps=steps, tol=tol)
        x, theta = self._start(x, shares, words.dtype)
        before = self._folded(x, words, prior, theta, steps - 1, tol)
        a = self.tensor(np.asarray(prior), words.dtype)
        after, ratios, sums = swept(self._kernel_entries(x, words.dtype), phi, a, before)
        return DeviceArray(after), self._sweep_statistics(
            x, phi, prior, before, ratios[: x.nnz], sums
        )

    def topic_bayes(
        self,
        x: Any,
        words: Any,
        prior: np.ndarray,
        gamma: Any,
        *,
        steps: int = 100,
        tol: float = 1e-3,
    ) -> tuple[DeviceArray, TopicStatistics]:
        x, g = self._start(x, gamma, np.float64)
        phi, a = self.tensor(words), self.tensor(np.asarray(prior), np.float64)
        below, data = padded_rows(phi), self._counts(x, words.dtype)
        g = g.clone()
        empty = (x.entries.counts == 0).nonzero()[:, 0]
        if len(empty) and steps:
            g[empty] = a
        ratios, theta = phi.new_zeros(x.nnz + 1), phi.new_zeros(g.shape)
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        for chunk in x.entries.chunks(phi.shape[1]):
            c, there, own = chunk.numbers(data), below[chunk.columns], g[chunk.rows]
            going = torch.ones(len(own), dtype=torch.bool, device=self.device)
            for _ in range(steps):
                share = _expected(own).exp().to(phi.dtype)
                s = torch.bmm(there, share[:, :, None])[:, :, 0]
                new = a + (share * _pulled(chunk, there, torch.where(s > 0, c / s, 0.0))).double()
                moved = (new - own).abs().mean(1)
                own = torch.where(going[:, None], new, own)
                going = going & (moved >= tol)
                if not bool(going.any()):
                    break
            share = _expected(own).exp().to(phi.dtype)
            s = torch.bmm(there, share[:, :, None])[:, :, 0]
            chunk.store(torch.where(s > 0, c / s, 0.0), ratios)
            g[chunk.rows], theta[chunk.rows] = own, share
            sums[0] += torch.where(
                chunk.seen, c.double() * s.double().clamp(min=1e-300).log(), 0.0
            ).sum()
            sums[1] += c.sum(dtype=torch.float64)
        logs = _expected(g)
        rest = ((a - g) * logs + torch.lgamma(g)).sum() - torch.lgamma(g.sum(1)).sum()
        counts, each = self._word_counts(x, phi, ratios, theta)
        (value, seen), rest, sizes, logs = all_fetched(sums, rest, each, logs.sum(0))
        found = TopicStatistics(counts, sizes, float(value + rest), float(value), float(seen), logs)
        return DeviceArray(g), found

    def topic_scores(self, x: Any, words: Any, shares: Any, floor: float) -> tuple[float, float]:
        x, theta = self._start(x, shares, words.dtype)
        below, data = padded_rows(self.tensor(words)), self._counts(x, words.dtype)
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        for chunk in x.entries.chunks(theta.shape[1]):
            c = chunk.numbers(data).double()
            s = torch.bmm(below[chunk.columns], theta[chunk.rows][:, :, None])[:, :, 0]
            sums[0] += (c * s.clamp(min=floor).double().log()).sum()
            sums[1] += c.sum()
        return tuple(sums.tolist())  # type: ignore[return-value]

    def _counts(self, x: DeviceMatrix, dtype: Any) -> torch.Tensor:
        return x.entries.data.to(torch_dtype(dtype))

    def _kernel_entries(
        self, x: DeviceMatrix, dtype: Any
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x.entries.indptr, x.entries.indices, self._counts(x, dtype)

    def _folded(
        self,
        x: DeviceMatrix,
        words: Any,
        prior: np.ndarray,
        theta: torch.Tensor,
        steps: int,
        tol: float,
    ) -> torch.Tensor:
        """Shares after some updates at the same words; a document whose shares move less than
        ``tol`` stays."""
        if steps <= 0:
            return theta.contiguous()
        phi, a = self.tensor(words), self.tensor(np.asarray(prior), words.dtype)
        if not usable(phi):
            return super()._folded(x, words, prior, theta, steps, tol)
        return folded(self._kernel_entries(x, words.dtype), phi, a, theta, steps, tol)

    def _word_counts(
        self, x: DeviceMatrix, phi: torch.Tensor, ratios: torch.Tensor, theta: torch.Tensor
    ) -> tuple[np.ndarray, torch.Tensor]:
        """Counts of words in topics, on both sides, and their sums, on the device."""
        counts = phi * entry_product(x.T.entries, ratios[x.entries.by_columns], theta)
        return self.twins.copy(counts), counts.sum(0, dtype=torch.float64)


def _pulled(chunk: Chunk, there: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    """sum_w r_dw phi_w of the documents of a chunk."""
    pieces = chunk.pieces(there)
    return chunk.whole(torch.bmm(r.reshape(len(pieces), 1, -1), pieces))[:, 0]


def _expected(gamma: torch.Tensor) -> torch.Tensor:
    """E log theta under Dir(gamma)."""
    return torch.digamma(gamma) - torch.digamma(gamma.sum(1, keepdim=True))
