"""Kernels in Triton for what torch would do in many small launches or through large arrays. CPU tensors, and machines without Triton, go by torch."""

from __future__ import annotations

import torch

from eckart.engines.cuda.kernels.language import INTERPRETED, PRESENT

__all__ = ["usable"]


def usable(tensor: torch.Tensor) -> bool:
    """Whether kernels can work on this tensor: on a CUDA device, or anywhere where Triton's interpreter was asked for (for tests)."""
    return PRESENT and (tensor.is_cuda or INTERPRETED) and tensor.dtype in (torch.float32, torch.float64)
