"""PyTorch, on first use; without it, one line that says how to get it."""

from __future__ import annotations

from typing import Any

from eckart.errors import MissingError


def need_torch(what: str) -> Any:
    """The module ``torch``; ``what`` is the name of the class that asks."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingError(
            f"{what} needs PyTorch, which is not installed; install it with: pip "
            'install "eckart[torch]"'
        ) from None
    return torch


def is_tensor(x: Any) -> bool:
    """Whether x is a tensor of PyTorch, asked without loading it."""
    return type(x).__module__.split(".")[0] == "torch" and hasattr(x, "detach")
