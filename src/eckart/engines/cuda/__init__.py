"""The primitives of ``protocol`` in PyTorch: on a CUDA device, or on CPU tensors (for tests). What
is not written here runs on the CPU engine."""

from __future__ import annotations

from typing import Any

from eckart.errors import InputError


def made(n_threads: int | None = None, device: Any = "cuda") -> Any:
    """The engine on a device, or one clear error where PyTorch is absent."""
    try:
        from eckart.engines.cuda.engine import TorchEngine
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise InputError(
            "engine='cuda' needs PyTorch; install it with: pip install 'eckart[torch]'"
        ) from None
    return TorchEngine(n_threads, device)
