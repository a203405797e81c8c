"""Kernels in Triton for what torch would do in many small launches or through large arrays. CPU
tensors, and machines without Triton, go by torch."""

from __future__ import annotations

from functools import cache

import torch

from eckart.engines.cuda.kernels.language import INTERPRETED, PRESENT, jit, tl

__all__ = ["usable"]

LEAST_CAPABILITY = (8, 0)
"""GPUs from which tensor cores multiply TF32 and a program has the shared memory that the kernels
ask for."""


def usable(tensor: torch.Tensor) -> bool:
    """Whether kernels can work on this tensor: on a CUDA device where they run, or anywhere where
    Triton's interpreter was asked for (for tests)."""
    if not PRESENT or tensor.dtype not in (torch.float32, torch.float64):
        return False
    return INTERPRETED or (tensor.is_cuda and _run_on(tensor.device))


@jit
def _one(out):
    tl.store(out, 1.0)


@cache
def _run_on(device: torch.device) -> bool:
    """Tried once: Triton needs a C compiler on the machine, and not every GPU will do."""
    if torch.cuda.get_device_capability(device) < LEAST_CAPABILITY:
        return False
    out = torch.zeros(1, device=device)
    try:
        _one[(1,)](out)
    except Exception:  # whatever is missing, torch does without it
        return False
    return float(out) == 1.0
