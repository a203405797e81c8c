"""The primitives of ``protocol`` in PyTorch: on a CUDA device, another accelerator, or CPU tensors.
What is not written here runs on the CPU engine."""

from __future__ import annotations

from typing import Any

from eckart.errors import InputError


def on_torch(n_threads: int | None = None) -> Any:
    """``engine="torch"``: the accelerator that PyTorch sees (an NVIDIA, AMD or Intel GPU), else its
    tensors on the processors. One without float64, as Apple's, cannot measure evidence and is left
    alone."""
    engine = made(n_threads, "cpu")
    import torch

    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if found is not None and found.type != "mps":
        engine = made(n_threads, found)
    engine.name = "torch"
    return engine


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
