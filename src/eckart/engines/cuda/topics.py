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

from eckart.engines.cuda.arrays import DeviceArray, all_fetched, torch_dtype
from eckart.engines.cuda.dense import entry_product
from eckart.engines.cuda.held import DeviceMatrix
from eckart.engines.cuda.kernels import usable
from eckart.engines.cuda.kernels.topics import folded, swept
from eckart.engines.cuda.stored import Chunk, padded_rows
from eckart.engines.protocol import TopicStatistics
from eckart.engines.protocol.topics import TopicWords


class DeviceTopics:
    """Documents under a topic model."""

    device: torch.device
    tensor: Any
    on_cpu: Any
    held: Any
    twins: Any

    def topic_words(
        self, counts: Any, sizes: np.ndarray, prior: Any, dtype: Any = None
    ) -> TopicWords:
        n, kind = len(counts), torch_dtype(dtype or counts.dtype)
        b = self.tensor(np.atleast_1d(np.asarray(prior, np.float64)))
        total = self.tensor(sizes, np.float64) + b.sum(0) * (1 if len(b) > 1 else n)
        held = total > 0
        words = (self.tensor(counts, np.float64) + b) / torch.where(held, total, 1.0)
        words = torch.where(held, words, 1.0 / n)
        value = (b * words.clamp(min=1e-45).log()).sum() if np.any(prior) else 0.0
        return TopicWords(self.twins.copy(words.to(kind)), float(value))

    def topic_fold(
        self, x: Any, words: Any, prior: np.ndarray, shares: Any, *, steps: int, tol: float = 0.0
    ) -> DeviceArray:
        x, theta = self._shares(x, shares, words.dtype)
        return DeviceArray(self._folded(x, words, prior, theta, steps, tol))

    def topic_sweep(
        self,
        x: Any,
        words: Any,
        prior: np.ndarray,
        shares: Any,
        *,
        steps: int = 1,
        tol: float = 0.0,
    ) -> tuple[DeviceArray, TopicStatistics]:
        x, theta = self._shares(x, shares, words.dtype)
        before = self._folded(x, words, prior, theta, steps - 1, tol)
        phi, a = self.tensor(words), self.tensor(np.asarray(prior), words.dtype)
        if usable(phi):
            after, ratios, sums = swept(self._kernel_entries(x, words.dtype), phi, a, before)
            return self._statistics(x, phi, prior, before, after, ratios, sums)
        after, ratios = _normal(torch.zeros_like(before) + a, before), before.new_zeros(x.nnz + 1)
        sums, below = torch.zeros(2, dtype=torch.float64, device=self.device), padded_rows(phi)
        for chunk in x.entries.chunks(phi.shape[1]):
            c, there = chunk.numbers(self._counts(x, words.dtype)), below[chunk.columns]
            old = before[chunk.rows]
            s = torch.bmm(there, old[:, :, None])[:, :, 0]
            r = torch.where(s > 0, c / s, 0.0)
            chunk.store(r, ratios)
            after[chunk.rows] = _normal(old * _pulled(chunk, there, r) + a, old)
            held = (s > 0) & chunk.seen
            sums[0] += torch.where(held, c.double() * s.double().log(), 0.0).sum()
            sums[1] += torch.where(held, c, 0.0).sum(dtype=torch.float64)
        return self._statistics(x, phi, prior, before, after, ratios, sums)

    def _statistics(
        self,
        x: DeviceMatrix,
        phi: torch.Tensor,
        prior: np.ndarray,
        before: torch.Tensor,
        after: torch.Tensor,
        ratios: torch.Tensor,
        sums: torch.Tensor,
    ) -> tuple[DeviceArray, TopicStatistics]:
        """What a sweep leaves, from the shares before and after it and the ratios at the
        entries."""
        counts, each = self._word_counts(x, phi, ratios, before)
        (value, seen), logs, sizes = all_fetched(
            sums, before.double().clamp(min=1e-37).log().sum(0), each
        )
        penalty = float(np.asarray(prior, np.float64) @ np.where(np.asarray(prior) > 0, logs, 0.0))
        return DeviceArray(after), TopicStatistics(
            counts, sizes, float(value) + penalty, float(value), float(seen)
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
        x, g = self._shares(x, gamma, np.float64)
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
        x, theta = self._shares(x, shares, words.dtype)
        below, data = padded_rows(self.tensor(words)), self._counts(x, words.dtype)
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        for chunk in x.entries.chunks(theta.shape[1]):
            c = chunk.numbers(data).double()
            s = torch.bmm(below[chunk.columns], theta[chunk.rows][:, :, None])[:, :, 0]
            sums[0] += (c * s.clamp(min=floor).double().log()).sum()
            sums[1] += c.sum()
        return tuple(sums.tolist())  # type: ignore[return-value]

    def _shares(self, x: Any, shares: Any, dtype: Any) -> tuple[DeviceMatrix, torch.Tensor]:
        """The documents, and one row of shares for each."""
        x = self.held(x)
        start = (
            shares if isinstance(shares, DeviceArray) else np.ascontiguousarray(np.asarray(shares))
        )
        return x, self.tensor(start, dtype).expand(x.shape[0], start.shape[-1])

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
        if usable(phi):
            return folded(self._kernel_entries(x, words.dtype), phi, a, theta, steps, tol)
        out, below, data = (
            _normal(torch.zeros_like(theta) + a, theta),
            padded_rows(phi),
            self._counts(x, words.dtype),
        )
        for chunk in x.entries.chunks(phi.shape[1]):
            c, there, own = chunk.numbers(data), below[chunk.columns], theta[chunk.rows]
            going = torch.ones(len(own), dtype=torch.bool, device=self.device)
            for _ in range(steps):
                s = torch.bmm(there, own[:, :, None])[:, :, 0]
                new = _normal(own * _pulled(chunk, there, torch.where(s > 0, c / s, 0.0)) + a, own)
                moved = (new - own).abs().sum(1)
                own = torch.where(going[:, None], new, own)
                if tol > 0:
                    going = going & (moved >= tol)
                    if not bool(going.any()):
                        break
            out[chunk.rows] = own
        return out

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


def _normal(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """Rows that sum to one; where there is nothing to divide, as they were."""
    total = new.sum(1, keepdim=True)
    return torch.where(total > 0, new / torch.where(total > 0, total, 1.0), old)


def _expected(gamma: torch.Tensor) -> torch.Tensor:
    """E log theta under Dir(gamma)."""
    return torch.digamma(gamma) - torch.digamma(gamma.sum(1, keepdim=True))
