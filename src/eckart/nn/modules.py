"""Layers and networks of PyTorch, built from a description in plain values (see
``nn.architecture``).

Backpropagation is PyTorch's: with z_{l+1} = phi(W z_l), delta_l = J_{l+1}^T delta_{l+1}, and the
derivative by W_ij is [delta]_i phi'((W z)_i) z_j. The tests compare it with finite differences for
every layer and activation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from eckart.errors import FileError


class Draws:
    """The generator that a network draws from in training, shared by its layers and its loss; None,
    out of training, is the default one of the device.

    PyTorch's own dropout draws from one generator of the whole process, which fits in several
    threads would share.
    """

    def __init__(self) -> None:
        self.generator: torch.Generator | None = None

    def normal(self, like: torch.Tensor) -> torch.Tensor:
        return torch.randn(
            like.shape, generator=self.generator, dtype=like.dtype, device=like.device
        )

    def uniform(self, like: torch.Tensor) -> torch.Tensor:
        return torch.rand(
            like.shape, generator=self.generator, dtype=like.dtype, device=like.device
        )


class Dropout(nn.Module):
    """Entries to zero with probability p in training, the others divided by 1 - p."""

    def __init__(self, p: float):
        super().__init__()
        self.p, self.draws = p, Draws()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or not self.p:
            return x
        kept = torch.empty_like(x, memory_format=torch.contiguous_format, requires_grad=False)
        if x.is_cuda:
            kept.bernoulli_(1 - self.p, generator=self.draws.generator)
        else:  # 16 bits an entry: a quarter of the time of a number of 53 bits
            words = torch.empty(-(-x.numel() // 4), dtype=torch.int64)
            words.random_(-(2**63), None, generator=self.draws.generator)
            bits = words.view(torch.int16)[: x.numel()].view(x.shape)
            torch.ge(bits, round(2**16 * self.p) - 2**15, out=kept)
        return x * kept.mul_(1 / (1 - self.p))


class Transposed(nn.Module):
    """x -> W^T x + b with the weights W of another dense layer, which owns them."""

    def __init__(self, other: nn.Linear):
        super().__init__()
        self.other = (other,)  # a tuple hides it from state_dict: the weights are listed once
        self.bias = nn.Parameter(torch.zeros(other.in_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.other[0].weight.t(), self.bias)


class ToImage(nn.Module):
    """Rows of height x width x channels, as an image array is flattened, to maps: channels x height
    x width."""

    def __init__(self, shape: list[int]):
        super().__init__()
        self.shape = tuple(shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(len(x), *self.shape).permute(0, 3, 1, 2)


class FromImage(nn.Module):
    """Maps back to rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 2, 3, 1).flatten(1)


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
}

LAYERS: dict[str, Callable[[dict[str, Any]], nn.Module]] = {
    "dense": lambda d: nn.Linear(d["in"], d["out"]),
    "activation": lambda d: ACTIVATIONS[d["name"]](),
    "dropout": lambda d: Dropout(d["p"]),
    "convolution": lambda d: nn.Conv2d(d["in"], d["out"], d["size"], d["stride"], d["padding"]),
    "transposed": lambda d: nn.ConvTranspose2d(
        d["in"], d["out"], d["size"], d["stride"], d["padding"], tuple(d["extra"])
    ),
    "max_pool": lambda d: nn.MaxPool2d(d["size"]),
    "flatten": lambda d: nn.Flatten(),
    "unflatten": lambda d: nn.Unflatten(1, tuple(d["shape"])),
    "to_image": lambda d: ToImage(d["shape"]),
    "from_image": lambda d: FromImage(),
}


def layer(description: dict[str, Any]) -> nn.Module:
    """One layer from its description.

    >>> layer({"layer": "dense", "in": 3, "out": 2})(torch.zeros(1, 3)).shape
    torch.Size([1, 2])
    """
    if description.get("layer") not in LAYERS:
        raise FileError(f"layer must be one of {', '.join(LAYERS)}, got {description!r}")
    return LAYERS[description["layer"]](description)


class Coder(nn.Module):
    """Encoder F and decoder G. ``forward`` gives G(F(x)) and the code's mean and log-variance (None
    without)."""

    def __init__(self, a: dict[str, Any]):
        super().__init__()
        self.k, self.variational, self.draws = a["code"], a["variational"], Draws()
        self.encoder = nn.Sequential(*map(layer, a["encoder"]))
        self.decoder = nn.Sequential(
            *(self._mirror(a["decoder"]) if a["tied"] else map(layer, a["decoder"]))
        )
        self.into = nn.Linear(a["in"], self.k, bias=False) if a["shortcut"] else None
        self.out_of = (
            nn.Linear(self.k, a["in"], bias=False) if a["shortcut"] and not a["tied"] else None
        )

    def _mirror(self, decoder: list[dict[str, Any]]) -> list[nn.Module]:
        """The decoder with the dense layers of the encoder, transposed, in reverse order."""
        owners = [m for m in self.encoder if isinstance(m, nn.Linear)]
        return [Transposed(owners.pop()) if d["layer"] == "dense" else layer(d) for d in decoder]

    def encode(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The code, or mean and log-variance of a Gaussian code."""
        out = self.encoder(x)
        z, log_var = (out[:, : self.k], out[:, self.k :]) if self.variational else (out, None)
        return (z if self.into is None else z + self.into(x)), log_var

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        """The output before its link: scaled deviations from the mean, or logits."""
        out = self.decoder(z)
        if self.into is None:
            return out
        back = F.linear(z, self.into.weight.t()) if self.out_of is None else self.out_of(z)
        return out + back

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Reconstruction of x; in training a Gaussian code is drawn, z = mean + exp(log_var / 2)
        e."""
        mean, log_var = self.encode(x)
        z = mean
        if log_var is not None and self.training:
            z = mean + torch.exp(0.5 * log_var) * self.draws.normal(mean)
        return self.decode(z), mean, log_var


class Head(nn.Module):
    """A chain of layers: an MLP, or convolutions, pooling and a linear head."""

    def __init__(self, a: dict[str, Any]):
        super().__init__()
        self.draws = Draws()
        self.layers = nn.Sequential(*map(layer, a["layers"]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


KINDS: dict[str, Callable[[dict[str, Any]], nn.Module]] = {"coder": Coder, "head": Head}


def build(architecture: dict[str, Any], seed: int = 0) -> Any:
    """The network of a description with random weights: those with which PyTorch makes its layers,
    and 0 for the last of them.

    PyTorch's global generator is not touched: weights are drawn from one of the network's own, in
    the order in which PyTorch would draw them.
    """
    if architecture.get("kind") not in KINDS:
        raise FileError(f"kind must be one of {', '.join(KINDS)}, got {architecture.get('kind')!r}")
    # shapes alone: what PyTorch would draw here comes from its global generator
    with torch.device("meta"):
        net: Any = KINDS[architecture["kind"]](architecture)
    net.to_empty(device="cpu")
    rng = torch.Generator().manual_seed(seed)
    for part in net.modules():
        _usual(part, rng)
        if isinstance(part, Dropout):
            part.draws = net.draws
    _quiet(getattr(net, "decoder" if isinstance(net, Coder) else "layers"))
    return net


def _usual(part: nn.Module, rng: torch.Generator) -> None:
    """The weights with which PyTorch makes a layer: uniform, of variance 1 / (3 inputs). Larger
    ones (He, Glorot) fit rows seen as well and others worse."""
    if isinstance(part, Transposed):
        nn.init.zeros_(part.bias)
    if isinstance(part, _DRAWN):
        nn.init.kaiming_uniform_(part.weight, a=5**0.5, generator=rng)
        if part.bias is not None:
            inputs = part.weight[0].numel()
            nn.init.uniform_(part.bias, -(inputs**-0.5), inputs**-0.5, generator=rng)


def _quiet(chain: Any) -> None:
    """Output weights and bias at 0: the first answer is the mean, and constant data are learned
    exactly."""
    last = [m for m in chain if isinstance(m, (nn.Linear, nn.ConvTranspose2d, Transposed))][-1]
    if not isinstance(last, Transposed):
        nn.init.zeros_(last.weight)
    if last.bias is not None:
        nn.init.zeros_(last.bias)


_DRAWN = (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)


def start_at_subspace(net: Coder, u: np.ndarray) -> None:
    """Let the linear maps start at the principal subspace: encoder U^T, decoder U (U is n x k), the
    nonlinear parts beside them at 0.

    Without hidden layers the layers themselves are set.
    """
    encoder: Any = net.encoder
    u_t = torch.as_tensor(np.ascontiguousarray(u.T))
    with torch.no_grad():
        if encoder[-1].bias is not None:
            nn.init.zeros_(encoder[-1].bias)
        last = (
            encoder[-1],
            [m for m in net.decoder if isinstance(m, (nn.Linear, nn.ConvTranspose2d, Transposed))][
                -1
            ],
        )
        if net.into is None:
            encoder[0].weight[: net.k].copy_(u_t)
            if isinstance(last[1], nn.Linear):
                last[1].weight.copy_(u_t.t())
            return
        net.into.weight.copy_(u_t)
        if net.out_of is not None:
            net.out_of.weight.copy_(u_t.t())
        for part in last:
            if not isinstance(part, Transposed):
                nn.init.zeros_(part.weight)


def arrays_of(net: nn.Module) -> dict[str, np.ndarray]:
    """The weights as NumPy arrays in float32 or float64."""
    return {name: w.detach().cpu().numpy().copy() for name, w in net.state_dict().items()}


def with_weights(architecture: dict[str, Any], weights: dict[str, np.ndarray]) -> Any:
    """A network of this description with these weights, for use: dropout off, no gradients kept."""
    net = build(architecture)
    first = next(iter(weights.values()), None)
    if first is not None and first.dtype == np.float64:
        net = net.double()
    try:
        net.load_state_dict({name: torch.as_tensor(np.array(a)) for name, a in weights.items()})
    except RuntimeError as error:
        raise FileError(
            f"the weights do not fit the layers: {str(error).splitlines()[-1].strip()}"
        ) from None
    return net.eval()
