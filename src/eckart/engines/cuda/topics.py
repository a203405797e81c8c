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
from eckart.engines.cuda.arrays import DeviceArray, torch_dtype
from eckart.engines.cuda.held import DeviceMatrix
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
