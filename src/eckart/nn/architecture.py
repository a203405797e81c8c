"""Networks described in plain values (JSON): which layers in which order. ``nn.modules`` builds
them.

A layer is a small dictionary with its kind under ``layer``:

dense          z = W x + b                                   in, out
activation     z_i = phi(x_i): sigmoid, tanh, relu, gelu      name
dropout        entries to zero with probability p, in training only
convolution    (f * h)(u) = sum_v f(u + v) h(v) per channel   in, out, size, stride, padding
transposed     its adjoint, which makes images larger         in, out, size, stride, padding, extra
max_pool       largest value of each size x size window
flatten, unflatten(shape), to_image(shape), from_image       rows of height x width x channels to
maps and back

A coder is an encoder and a decoder; ``shortcut`` adds a linear map beside each, F(x) = W x + f(x)
and G(z) = V z + g(z), which starts at the principal subspace; ``tied`` uses the transposed weights
of the encoder in the decoder; ``variational`` gives the encoder 2k outputs: mean and log-variance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from eckart.errors import FileError, InputError, invalid

ACTIVATIONS = ("relu", "gelu", "tanh", "sigmoid", "identity")
Layer = dict[str, Any]


def default_hidden(n: int, k: int, rows: int) -> list[int]:
    """Widths of the encoder where none were asked for: two layers, 1024 and 512 wide at most,
    narrower for narrow data and for few rows.

    >>> default_hidden(784, 30, 60_000), default_hidden(64, 2, 1797), default_hidden(4096, 20, 300)
    ([1024, 512], [256, 128], [256, 128])
    """
    room = 1024 if rows >= 20_000 else 512 if rows >= 5000 else 256
    first = min(room, max(32, 4 * n))
    first = 1 << (first.bit_length() - 1)
    return [first, max(first // 2, min(k, first))]


def head_hidden(n: int, rows: int) -> list[int]:
    """Widths of a network with few answers where none were asked for: few columns need room to be
    combined, many rows can fill more of it.

    >>> head_hidden(16, 2400), head_hidden(784, 60_000)
    ([256, 128], [512, 256])
    """
    first = 512 if rows >= 20_000 and n >= 128 else 256
    return [first, first // 2]


def stack(widths: Sequence[int], activation: str, dropout: float = 0.0) -> list[Layer]:
    """Dense layers between consecutive widths, an activation (and dropout) after each but the last.

    >>> [layer["layer"] for layer in stack([4, 3, 2], "relu")]
    ['dense', 'activation', 'dense']
    """
    layers: list[Layer] = []
    for i, (a, b) in enumerate(itertools.pairwise(widths)):
        layers.append({"layer": "dense", "in": int(a), "out": int(b)})
        if i < len(widths) - 2:
            layers += _bent(activation, dropout)
    return layers


def dense_coder(
    n: int,
    k: int,
    hidden: Sequence[int],
    activation: str,
    *,
    dropout: float = 0.0,
    tied: bool = False,
    variational: bool = False,
    shortcut: bool = False,
) -> dict[str, Any]:
    """n -> hidden -> k -> hidden reversed -> n."""
    encoder = stack([n, *hidden, 2 * k if variational else k], activation, dropout)
    decoder = stack([k, *reversed(hidden), n], activation, dropout)
    if tied and variational:
        raise InputError(
            "tied=True needs variational=0: an encoder with 2k outputs has no transpose"
        )
    return _coder(n, k, encoder, decoder, tied, variational, shortcut)


def conv_coder(
    image: Sequence[int],
    k: int,
    channels: Sequence[int],
    hidden: Sequence[int],
    activation: str,
    *,
    dropout: float = 0.0,
    variational: bool = False,
    shortcut: bool = False,
) -> dict[str, Any]:
    """Convolutions of stride 2 that halve the image, dense layers down to k, and the mirror image
    of both."""
    h, w, c = image
    encoder: list[Layer] = [{"layer": "to_image", "shape": [h, w, c]}]
    sizes = [(h, w)]
    for a, b in zip([c, *channels[:-1]], channels):
        encoder += [_convolution(a, b, stride=2), *_bent(activation, 0.0)]
        sizes.append(((sizes[-1][0] + 1) // 2, (sizes[-1][1] + 1) // 2))
    h, w = sizes[-1]
    flat = channels[-1] * h * w
    encoder += [
        {"layer": "flatten"},
        *stack([flat, *hidden, 2 * k if variational else k], activation, dropout),
    ]
    decoder = stack([k, *reversed(hidden), flat], activation, dropout)
    decoder += [*_bent(activation, 0.0), {"layer": "unflatten", "shape": [channels[-1], h, w]}]
    for i in range(len(channels) - 1, -1, -1):
        (h, w), (big, wide) = sizes[i + 1], sizes[i]
        extra = [big - (2 * h - 1), wide - (2 * w - 1)]
        made = channels[i - 1] if i else c
        decoder.append(
            {**_convolution(channels[i], made, stride=2), "layer": "transposed", "extra": extra}
        )
        decoder += _bent(activation, 0.0) if i else []
    decoder.append({"layer": "from_image"})
    return _coder(image[0] * image[1] * c, k, encoder, decoder, False, variational, shortcut) | {
        "image": list(image)
    }


def dense_head(
    n: int, out: int, hidden: Sequence[int], activation: str, dropout: float = 0.0
) -> dict[str, Any]:
    """n -> hidden -> out."""
    return {
        "kind": "head",
        "in": n,
        "out": out,
        "layers": stack([n, *hidden, out], activation, dropout),
    }


def conv_head(
    image: Sequence[int],
    out: int,
    channels: Sequence[int],
    hidden: Sequence[int],
    activation: str,
    dropout: float = 0.0,
) -> dict[str, Any]:
    """Convolution, activation and max-pooling for each number of channels, then flattening and
    dense layers."""
    h, w, c = image
    layers: list[Layer] = [{"layer": "to_image", "shape": [h, w, c]}]
    for a, b in zip([c, *channels[:-1]], channels):
        layers += [_convolution(a, b, stride=1), *_bent(activation, 0.0)]
        if min(h, w) >= 2:
            layers.append({"layer": "max_pool", "size": 2})
            h, w = h // 2, w // 2
    layers.append({"layer": "flatten"})
    layers += [{"layer": "dropout", "p": float(dropout)}] if dropout else []
    layers += stack([channels[-1] * h * w, *hidden, out], activation, dropout)
    return {
        "kind": "head",
        "in": image[0] * image[1] * c,
        "out": out,
        "layers": layers,
        "image": list(image),
    }


def image_shape(image: Any, n: int) -> list[int]:
    """[height, width, channels] of rows of n numbers. None: a square, or else one row of n pixels.

    >>> image_shape(None, 784), image_shape((8, 4), 32), image_shape(None, 10)
    ([28, 28, 1], [8, 4, 1], [1, 10, 1])
    """
    if image is None:
        side = round(n**0.5)
        return [side, side, 1] if side * side == n else [1, n, 1]
    try:
        sizes = [int(v) for v in image]
        whole = all(v == s and s >= 1 for v, s in zip(image, sizes))
    except (TypeError, ValueError, OverflowError):
        sizes, whole = [], False
    if not whole or len(sizes) not in (2, 3):
        raise invalid("image", image, "(height, width) or (height, width, channels)")
    sizes = [*sizes, 1][:3]
    if sizes[0] * sizes[1] * sizes[2] != n:
        raise invalid("image", image, f"numbers whose product is {n}, the number of columns")
    return sizes


def first_convolution(architecture: dict[str, Any]) -> tuple[str, int] | None:
    """Where the first convolution stands: the name of its chain, and its position there; None
    without one.

    Its filters are the weights "chain.position.weight", whatever order the weights were stored in.

    >>> first_convolution(conv_head([4, 4, 1], 2, [3], [], "relu")), first_convolution(dense_head(4, 2, [], "relu"))
    (('layers', 1), None)
    """
    chain = "encoder" if architecture["kind"] == "coder" else "layers"
    at = next(
        (i for i, part in enumerate(architecture[chain]) if part["layer"] == "convolution"), None
    )
    return None if at is None else (chain, at)


def weight_shapes(a: dict[str, Any]) -> tuple[dict[str, tuple[int, ...]], int]:
    """Name and shape of every weight of a description, and the size of its output; refused where
    one layer does not follow from another.

    >>> weight_shapes(dense_head(3, 2, [], "relu"))
    ({'layers.0.weight': (2, 3), 'layers.0.bias': (2,)}, 2)
    """
    shapes: dict[str, tuple[int, ...]] = {}
    n = _count(a["in"])
    if a["kind"] == "head":
        return shapes, _flow("layers", a["layers"], (n,), shapes)
    if a["kind"] != "coder" or not all(
        isinstance(a[name], bool) for name in ("tied", "variational", "shortcut")
    ):
        raise FileError(
            "kind must be a coder or a head, with tied, variational and shortcut, got "
            f"{a['kind']!r}"
        )
    k = _count(a["code"])
    if _flow("encoder", a["encoder"], (n,), shapes) != (2 * k if a["variational"] else k):
        raise FileError(f"the encoder does not end in {k} numbers")
    out = _flow("decoder", a["decoder"], (k,), shapes)
    if a["tied"]:  # the weights of the encoder, transposed, in reverse order
        owners = [
            f"encoder.{i}.weight" for i, part in enumerate(a["encoder"]) if part["layer"] == "dense"
        ]
        for i, part in enumerate(a["decoder"]):
            if part["layer"] == "dense" and (
                not owners or shapes.pop(f"decoder.{i}.weight") != shapes[owners.pop()][::-1]
            ):
                raise FileError("the decoder is not the transpose of the encoder")
    if a["shortcut"]:
        shapes |= {"into.weight": (k, n)} | ({} if a["tied"] else {"out_of.weight": (n, k)})
    return shapes, out


def _flow(
    chain: str, layers: list[Layer], shape: tuple[int, ...], shapes: dict[str, tuple[int, ...]]
) -> int:
    """Follow a row through a chain of layers; its size at the end."""
    for i, d in enumerate(layers):
        kind, size = d["layer"], math.prod(shape)
        if kind == "dense" and shape == (_count(d["in"]),):
            shape = (_count(d["out"]),)
            shapes |= {f"{chain}.{i}.weight": (d["out"], d["in"]), f"{chain}.{i}.bias": shape}
        elif (
            kind in ("convolution", "transposed")
            and len(shape) == 3
            and shape[0] == _count(d["in"])
        ):
            side, stride, pad = _count(d["size"]), _count(d["stride"]), _count(d["padding"], 0)
            if kind == "convolution":
                high, wide = ((s + 2 * pad - side) // stride + 1 for s in shape[1:])
            else:
                if any(not 0 <= _count(e, 0) < stride for e in d["extra"]):
                    raise FileError(f"layer must be an extra below its stride, got {d!r}")
                high, wide = (
                    (s - 1) * stride - 2 * pad + side + e for s, e in zip(shape[1:], d["extra"])
                )
            shape = (_count(d["out"]), _count(high), _count(wide))
            ends = (d["out"], d["in"]) if kind == "convolution" else (d["in"], d["out"])
            shapes |= {f"{chain}.{i}.weight": (*ends, side, side), f"{chain}.{i}.bias": (d["out"],)}
        elif kind == "max_pool" and len(shape) == 3:
            shape = (shape[0], *(_count(s // _count(d["size"])) for s in shape[1:]))
        elif (
            kind in ("unflatten", "to_image")
            and math.prod(map(_count, d["shape"])) == size
            and len(d["shape"]) == 3
        ):
            shape = tuple(d["shape"]) if kind == "unflatten" else (d["shape"][2], *d["shape"][:2])
        elif kind == "flatten" or (kind == "from_image" and len(shape) == 3):
            shape = (size,)
        elif not (kind == "activation" and d["name"] in ACTIVATIONS[:-1]) and not (
            kind == "dropout" and 0 <= d["p"] < 1
        ):
            raise FileError(f"layer {d!r} came after one of shape {shape}, which it does not fit")
    return math.prod(shape)


def _count(value: Any, least: int = 1) -> int:
    if type(value) is not int or value < least:
        raise FileError(f"the description of a network must hold numbers >= {least}, got {value!r}")
    return value


def _coder(
    n: int,
    k: int,
    encoder: list[Layer],
    decoder: list[Layer],
    tied: bool,
    variational: bool,
    shortcut: bool,
) -> dict[str, Any]:
    return {
        "kind": "coder",
        "in": n,
        "code": k,
        "encoder": encoder,
        "decoder": decoder,
        "tied": bool(tied),
        "variational": bool(variational),
        "shortcut": bool(shortcut),
    }


def _bent(activation: str, dropout: float) -> list[Layer]:
    layers: list[Layer] = (
        [] if activation == "identity" else [{"layer": "activation", "name": activation}]
    )
    return layers + ([{"layer": "dropout", "p": float(dropout)}] if dropout else [])


def _convolution(a: int, b: int, stride: int) -> Layer:
    return {
        "layer": "convolution",
        "in": int(a),
        "out": int(b),
        "size": 3,
        "stride": stride,
        "padding": 1,
    }
