"""A card that is not there: tensors that say they lie on a CUDA device, their numbers in the host's
memory. Without a GPU tests see what CPU tensors hide.

    with PretendedCard() as card:
        PCA(2, engine="cuda").fit(x)
    card.moves, card.waits, card.said()

It refuses what CUDA refuses (tensors of two places in one operation, whole numbers in a matrix
product, a tensor of the card as an array of NumPy) and what this engine promises not to do: sums of
floats that threads make in any order. It counts copies between host and card, and waits: everything
after which the host knows a number that the card has made. A copy on another stream is made as late
as CUDA may make it. Kernels in Triton run where its interpreter does (``TRITON_INTERPRET=1``), else
the engine goes by torch. It cannot see seconds, the rounding of tensor cores, memory that runs out,
what compiled kernels do, CUDA graphs, and copies that PyTorch's own functions make inside.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode

from eckart.engines.choose import gpu_seen

PLACE, HOST = torch.device("cuda:0"), torch.device("cpu")
READS = {
    "item",
    "__float__",
    "__int__",
    "__bool__",
    "__index__",
    "tolist",
    "equal",
    "allclose",
    "is_nonzero",
    "__contains__",
}
WAITS = {"nonzero", "argwhere", "masked_select", "bincount", "unique", "unique_consecutive"} | {
    "eigh",
    "eigvalsh",
    "svd",
    "lstsq",
    "cholesky",
    "inv",
    "solve",
}
ANY_ORDER = {
    "index_add",
    "scatter_add",
    "scatter_reduce",
    "index_reduce",
    "cumsum",
    "cumprod",
    "histc",
}
PRODUCTS = {
    "matmul",
    "rmatmul",
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "mv",
    "addmv",
    "dot",
    "vdot",
    "outer",
    "einsum",
    "cat",
    "stack",
    "hstack",
    "vstack",
}
"""Functions that answer with numbers of the host; that wait for the card, because the shape of
their answer, or whether there is one, depends on numbers; whose sums of floats have no fixed order
on a GPU (``torch.use_deterministic_algorithms``); that take no single numbers of the host and,
joins aside, no whole one."""
PARTS = (int, slice, type(None), type(Ellipsis))
TWO = (
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
)


class Move(NamedTuple):
    """A copy: "up" to the card or "down" to the host, and the line of eckart that asked for it."""

    way: str
    shape: tuple[int, ...]
    line: str


class CardTensor(torch.Tensor):
    """A tensor of the card; ``inner`` has its numbers. Every function of PyTorch that meets one
    comes to the card."""

    device, is_cuda, is_cpu = PLACE, True, False
    shape = property(lambda self: self.inner.shape)
    dtype = property(lambda self: self.inner.dtype)
    ndim = property(lambda self: self.inner.ndim)
    __cuda_array_interface__ = property(
        lambda self: {"shape": tuple(self.inner.shape), "version": 3}
    )

    def __len__(self) -> int:
        return len(self.inner)

    def record_stream(self, _: Any) -> None:
        """Memory of the host is not given to others while it is held."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor, card: PretendedCard) -> CardTensor:
        out = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined]
        out.inner, out.card = inner, card
        return out

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Where no mode is at work: on another thread."""
        return next(cards_in((args, kwargs))).card.__torch_function__(func, types, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"{func} slipped past the pretended card")


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(each)


def cards_in(value: Any) -> Iterator[CardTensor]:
    return (a for a in tensors_in(value) if isinstance(a, CardTensor))


def changed(value: Any, do: Any) -> Any:
    """Tuples, lists and dictionaries with ``do`` of the tensors in them."""
    if isinstance(value, torch.Tensor):
        return do(value)
    if isinstance(value, (tuple, list)):
        parts = [changed(each, do) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return (
        {key: changed(each, do) for key, each in value.items()}
        if isinstance(value, dict)
        else value
    )


def inner_of(value: Any) -> Any:
    return changed(value, lambda a: a.inner if isinstance(a, CardTensor) else a)


class PretendedCard(TorchFunctionMode):
    """The card, in use inside ``with``: ``torch.cuda`` answers as if it were there."""

    def __init__(self, memory: int = 2**36):
        self.memory, self.aside, self._patches = memory, False, ExitStack()
        self.moves: list[Move] = []
        self.waits: Counter[tuple[str, str]] = Counter()
        self.locked: dict[int, torch.Tensor] = {}
        self.late: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.reading: set[int] = set()

    def __enter__(self) -> PretendedCard:
        for owner, name, value in self._pretended():
            self._patches.enter_context(patch.object(owner, name, value))
        gpu_seen.cache_clear()  # what other tests of this process have seen
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patches.close()
        gpu_seen.cache_clear()

    def _pretended(self) -> Any:
        """(module, name, what stands there): what of PyTorch asks the driver."""
        Generator = torch.Generator
        facts = SimpleNamespace(
            total_memory=self.memory, multi_processor_count=132, name="a pretended card"
        )
        event = SimpleNamespace(record=lambda *_: None, synchronize=lambda: self.settle("event"))
        stream = SimpleNamespace(
            wait_event=lambda _: self.settle(),
            wait_stream=lambda _: self.settle(),
            synchronize=lambda: self.settle("stream"),
        )
        answers = {
            "empty_cache": None,
            "is_available": True,
            "is_initialized": True,
            "device_count": 1,
            "current_device": 0,
            "get_device_properties": facts,
            "get_device_capability": (9, 0),
            "get_device_name": facts.name,
            "mem_get_info": (self.memory, self.memory),
            "is_bf16_supported": True,
            "Stream": stream,
            "current_stream": stream,
            "Event": event,
            "device": nullcontext(),
            "is_current_stream_capturing": False,
        }
        for name, answer in answers.items():
            yield torch.cuda, name, lambda *_, answer=answer, **__: answer
        yield torch.cuda, "stream", lambda *_: patch.object(self, "aside", True)
        yield torch.cuda, "synchronize", lambda *_: self.settle("synchronize")
        yield (
            torch,
            "Generator",
            type(
                "Generator",
                (Generator,),
                {"__new__": lambda cls, device=HOST: Generator.__new__(cls, HOST)},
            ),
        )
        together = staticmethod(
            lambda lists, with_indices=False: {
                (PLACE, lists[0][0].dtype): (lists, list(range(len(lists[0]))))
            }
        )
        yield (
            torch.optim.Optimizer,
            "_group_tensors_by_device_and_dtype",
            together,
        )  # asks below Python where tensors lie
        if "triton" in sys.modules:
            from triton.runtime.interpreter import InterpretedFunction

            yield InterpretedFunction, "run", self._interpreted(InterpretedFunction.run)

    def _interpreted(self, run: Any) -> Any:
        """A kernel of Triton on the numbers themselves; CUDA cannot follow pointers to the host's
        memory."""

        def call(kernel: Any, *args: Any, **named: Any) -> Any:
            if any(not isinstance(a, CardTensor) for a in tensors_in((args, named))):
                raise ValueError(
                    f"Pointer argument of {kernel} cannot be accessed from Triton (cpu tensor?)"
                )
            return run(kernel, *inner_of(args), **inner_of(named))

        return call

    def settle(self, waited: str = "") -> None:
        """Copies that were only promised are made: another stream was waited for, by the card or
        (``waited``) by the host."""
        if waited:
            self._waited(waited)
            self.reading.clear()
        for there, here in self.late:
            there.copy_(here)
        self.late.clear()

    def _waited(self, what: str) -> None:
        self.waits[what, _line()] += 1

    def _moved(self, way: str, a: torch.Tensor, later: bool = False) -> None:
        if way == "down" and later:
            raise AssertionError(
                "a copy to the host that nobody waits for: its numbers may not be there yet"
            )
        self.moves.append(Move(way, tuple(a.shape), _line()))
        if way == "down":
            self._waited("copy")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One function of PyTorch, where its tensors lie."""
        kwargs = kwargs or {}
        name = func.__self__.__name__ if func.__name__ in ("__get__", "__set__") else func.__name__
        cards = list(cards_in((args, kwargs)))
        if kwargs.pop("pin_memory", False) or name == "pin_memory":
            found = func(*args, **kwargs) if name != "pin_memory" else args[0].clone()
            return self.locked.setdefault(found.untyped_storage().data_ptr(), found)
        if name in ("to", "cpu", "cuda"):
            return self._sent(name, args, kwargs)
        asked = kwargs.get("device")
        if asked is not None and torch.device(asked).type == "cuda":
            kwargs = {**kwargs, "device": HOST}
            if name in ("tensor", "as_tensor", "asarray"):
                return args[0] if cards else self._up(func(*args, **kwargs))
            return self._wrapped(func(*inner_of(args), **inner_of(kwargs)), cards)
        if not cards:
            if (
                self.reading
                and name in ("copy_", "fill_", "__setitem__")
                and args[0].untyped_storage().data_ptr() in self.reading
            ):
                raise AssertionError("memory was written to that the card may not have read yet")
            return func(*args, **kwargs)
        if name in ("numpy", "__array__", "__dlpack__"):
            raise TypeError(
                f"can't convert cuda:0 device type tensor to numpy ({name}). Use "
                "Tensor.cpu() to copy the tensor to host memory first."
            )
        # parameters that move to the card become others
        if name == "_has_compatible_shallow_copy_type":
            return False
        if name in ("copy_", "__setitem__"):
            return self._written(name, func, args, kwargs)
        self._check(name, args, kwargs, cards)
        if (
            wide := kwargs.pop("out_dtype", None)
        ) is not None:  # sums wider than the factors, which PyTorch has for CUDA alone
            args = changed(args, lambda a: CardTensor(inner_of(a).to(wide), self))
        found = func(*inner_of(args), **inner_of(kwargs))
        if (
            name in READS
            or name in WAITS
            or (name == "repeat_interleave" and kwargs.get("output_size") is None)
        ):
            self._waited(name)
        return (
            iter(self._wrapped(tuple(found), cards))
            if name == "__iter__"
            else self._wrapped(found, cards)
        )

    def _wrapped(self, found: Any, cards: list[CardTensor]) -> Any:
        """Results on the card; what was changed in place is the tensor that it was."""
        own = {id(a.inner): a for a in cards}
        return changed(found, lambda a: own[id(a)] if id(a) in own else CardTensor(a, self))

    def _up(self, host: torch.Tensor, later: bool = False) -> CardTensor:
        self._moved("up", host)
        self._promise(there := host.clone(), host, later)
        return CardTensor(there, self)

    def _promise(self, there: torch.Tensor, host: torch.Tensor, later: bool) -> None:
        """On a stream of its own the card copies from locked memory when it comes to it."""
        if later and self.aside and host.untyped_storage().data_ptr() in self.locked:
            self.late.append((there, host))
            self.reading.add(host.untyped_storage().data_ptr())
            there.fill_(torch.nan) if there.is_floating_point() else there.zero_()

    def _sent(self, name: str, args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
        """``to``, ``cpu`` and ``cuda``."""
        own, rest, here = args[0], args[1:], isinstance(args[0], CardTensor)
        if name == "to" and rest and isinstance(rest[0], torch.Tensor):
            rest = (PLACE if isinstance(rest[0], CardTensor) else HOST, inner_of(rest[0]).dtype)
        copy = kwargs.pop("copy", False)
        where, dtype, later, _ = (
            torch._C._nn._parse_to(*rest, **kwargs) if name == "to" else (None, None, False, None)
        )
        to_card = (
            name == "cuda" or (name == "to" and here) if where is None else where.type == "cuda"
        )
        if here and not to_card:
            self._moved("down", own, later)
            return own.inner.clone() if dtype is None else own.inner.to(dtype, copy=True)
        if to_card and not here:
            own = self._up(own, later)
        if not to_card:
            return own.to(*args[1:], **kwargs, copy=copy) if name == "to" else own
        kind = own.inner.dtype if dtype is None else dtype
        return (
            own
            if kind == own.inner.dtype and not copy
            else CardTensor(own.inner.to(kind, copy=copy), self)
        )

    def _written(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Numbers of one tensor to another, which may lie elsewhere; at places that a tensor names,
        single numbers alone may."""
        target, source = args[0], args[1] if name == "copy_" else args[2]
        here, there = isinstance(target, CardTensor), isinstance(source, CardTensor)
        if name == "__setitem__":
            self._indexed(args[1])
            plain = all(
                isinstance(a, PARTS)
                for a in (args[1] if isinstance(args[1], tuple) else (args[1],))
            )
            if isinstance(source, torch.Tensor) and here != there and source.ndim and not plain:
                raise RuntimeError(f"{TWO} (index_put_)")
        found = func(*inner_of(args), **inner_of(kwargs))
        if isinstance(source, torch.Tensor) and here != there:
            later = bool(
                kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2])
            )
            self._moved("up" if here else "down", source, later)
            if here and name == "copy_":
                self._promise(target.inner, source, later)
        return target if found is not None else None

    def _indexed(self, at: Any) -> None:
        """Places that are named by tensors: those of the host are sent, and a yes or no for each is
        counted first."""
        for each in tensors_in(at if isinstance(at, tuple) else (at,)):
            if not isinstance(each, CardTensor):
                self._moved("up", each)
            if inner_of(each).dtype == torch.bool:
                self._waited("places by yes and no")

    def _check(self, name: str, args: Any, kwargs: dict[str, Any], cards: list[CardTensor]) -> None:
        """What CUDA or this engine does not allow."""
        bare, hosts = (
            name.strip("_"),
            [a for a in tensors_in((args, kwargs)) if not isinstance(a, CardTensor)],
        )
        if name == "__getitem__":
            self._indexed(args[1])
            hosts = []
        if any(a.ndim or bare in PRODUCTS for a in hosts):
            raise RuntimeError(f"{TWO} ({name})")
        floats = any(a.inner.dtype.is_floating_point for a in cards)
        if bare in PRODUCTS - {"cat", "stack", "hstack", "vstack", "outer"} and not floats:
            raise RuntimeError(f'"{name}_cuda" not implemented for {cards[0].inner.dtype}')
        added = (
            bare in ANY_ORDER
            or (bare in ("index_put", "put") and (kwargs.get("accumulate") or len(args) > 3))
            or (bare == "bincount" and len(args) > 1)
        )
        if added and floats:
            raise AssertionError(
                f"{name} adds floats in any order on a GPU: the same seed would not "
                "give the same bits"
            )

    def tall(self, *sizes: int) -> list[Move]:
        """Copies of arrays with one of these numbers of rows or columns."""
        return [move for move in self.moves if set(move.shape) & set(sizes)]

    def said(self, most: int = 12) -> str:
        """Copies and waits, by the lines that asked for them."""
        copies = Counter(f"copies {move.way:<5} {move.line}" for move in self.moves)
        waits = Counter(
            {f"waits {what} {line}": count for (what, line), count in self.waits.items()}
        )
        return "\n".join(
            f"{count:>7} {words}"
            for each in (copies, waits)
            for words, count in each.most_common(most)
        )


def _line() -> str:
    """The innermost line of eckart that is at work."""
    frame: Any = sys._getframe(1)
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("eckart"):
        frame = frame.f_back
    return (
        "a test"
        if frame is None
        else f"{frame.f_globals['__name__'].removeprefix('eckart.')}:{frame.f_lineno} "
        f"{frame.f_code.co_name}"
    )
