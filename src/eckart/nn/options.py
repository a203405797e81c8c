"""The parameters that all networks share: one base with the rules and the words of each, and the
recipe that they are resolved into."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from eckart.errors import InputError
from eckart.fit import Estimator
from eckart.nn.architecture import ACTIVATIONS
from eckart.optim.rules import RULES
from eckart.parameters import (
    Rule,
    check,
    either,
    file_name,
    flag,
    is_int,
    number,
    one_of,
    optional,
    param,
    whole,
)

EPOCHS = (8000, 30, 300)
"""Gradient steps of a fit where ``max_iter`` is open: as many epochs as that makes, from 30 to
300."""


SHARE = either(number(0, 1, below=True), wanted="a share of 0 (none) to below 1")
HELD_OUT = 0.1
"""The share of rows that is held out where it is left open and rows are many enough."""


def widths(words: str, least: int = 0, none: bool = False) -> Rule:
    """A list of at least so many positive ints; None where ``none`` says so."""

    def fits(value: Any) -> bool:
        if value is None or isinstance(value, (str, bytes)) or not hasattr(value, "__len__"):
            return none and value is None
        return len(value) >= least and all(is_int(w) and w >= 1 for w in value)

    return Rule(words, fits)


ENGINE = either(
    one_of("auto", "cpu", "cuda"),
    wanted="'auto', 'cpu' or 'cuda': networks run in PyTorch, on the processors or on a GPU of "
    "this machine",
)
WIDTHS = widths("None or a list of widths >= 1, such as [512, 256]", none=True)
WORDS = {
    "training": """optimizer : "gd", "heavy_ball", "nesterov", "adagrad", "adam"
    learning_rate : "auto" or float
        Step for a loss of about 1 an entry; "auto" is 0.001 for Adam (0.002 where classes or numbers are learned).
    schedule : "cosine", "linear" or "constant"
        How the step falls over ``max_iter`` epochs.
    max_iter : None or int
        Most epochs; None: as many as make 8000 steps, from 30 to 300 (classes, numbers: 1500 steps, 3000 where no row is held out, 8 to 300).
    batch_size : "auto" or int
    validation_fraction, patience, tol : float or "auto", int, float
        Share of rows held out ("auto": a tenth, of classes none below 5,000 rows); when their loss has not fallen by ``tol`` (relative)
        for ``patience`` epochs, the rate falls to 0 in some more, and the fit ends. The best weights are kept.
    clip : None or float
        Largest norm of a gradient.
    weight_decay : float
        Weight of the penalty weight_decay / 2 ||W||^2, in units of the scaled loss.
    engine : "auto", "cpu", "cuda"
        "auto": the CPU, unless X is a tensor on a GPU or ``device`` says otherwise.
    device : None, "cpu", "cuda", "cuda:1"
        Which device of the engine; None: the first.
    precision, compile : "auto" or names
        "float32", "float64", "bfloat16" (products, on a GPU); "auto" is float32 on a CPU; on a GPU bfloat16 products, long runs compiled.
    checkpoint : None or path
        Keep the state here every two minutes; the same call after a crash goes on from there, with the same bits on a CPU.
    random_state, n_threads, verbose
        Seed; most threads of the CPU (the last bits depend on it); progress bars.""",
    "units": """activation : "relu", "gelu", "tanh", "sigmoid", "identity"
    dropout : float
        Share of hidden units set to 0 in each step ("auto", of classes: 0.2 below 5,000 rows, else 0).""",
    "coding": """loss : "squared" or "bernoulli"
        Squared error, or cross-entropy for data from 0 to 1.
    noise, corruption : float, "gaussian" or "mask"
        Denoising: the encoder sees x + noise e (e standard normal, in units of the data's spread), or x with this share of entries hidden.
    variational : float
        Weight of KL(code || N(0, I)); 0 gives plain codes. Above 0 ``sample`` draws new rows.
    init : "random" or "pca"
        "pca" adds a linear map beside encoder and decoder that starts at the principal subspace: training starts at PCA's error.""",
    "layers": """hidden : None or list of int
        Widths of the hidden layers; None: two, 256 and 128 wide or more by the shape of the data (one of 128 after convolutions).
    image : None, (height, width) or (height, width, channels)
        Rows are images: convolution, activation and max-pooling for each entry of ``channels``, then flattening and dense layers.
    channels : list of int
        Filters of each convolution; they have 3 x 3 entries.""",
}
"""The text of parameters that several networks have; a docstring names it in braces."""


@dataclass(eq=False, repr=False)
class NetworkParameters(Estimator):
    """How a network is trained. PyTorch touches the entries, so ``engine`` says on which kind of
    device, and ``device`` on which one."""

    _: KW_ONLY
    hidden: Any = param(None, WIDTHS)
    activation: Literal["relu", "gelu", "tanh", "sigmoid", "identity"] = param(
        "relu", one_of(*ACTIVATIONS)
    )
    dropout: float | str = param(0.0, SHARE)
    weight_decay: float = param(0.0, number(0))
    optimizer: Literal["gd", "heavy_ball", "nesterov", "adagrad", "adam"] = param(
        "adam", one_of(*RULES)
    )
    learning_rate: Any = param("auto", either(one_of("auto"), number(0, above=True)))
    schedule: Literal["constant", "cosine", "linear"] = param("cosine")
    max_iter: int | None = param(
        None, either(optional(whole(1)), wanted="None or a number of epochs >= 1")
    )
    batch_size: Any = param("auto", either(one_of("auto"), whole(1)))
    validation_fraction: float | str = param(
        "auto",
        either(
            one_of("auto"),
            number(0, 1, below=True),
            wanted="'auto' or a share of 0 (none) to below 1",
        ),
    )
    patience: int = param(10, either(whole(1), wanted="a number of epochs >= 1"))
    tol: float = param(1e-4, number(0))
    clip: float | None = param(
        None, either(optional(number(0, above=True)), wanted="None or a largest gradient norm > 0")
    )
    device: Any = param(
        None,
        Rule(
            "None, 'cpu' or 'cuda'",
            lambda v: v is None or (isinstance(v, str) and v.partition(":")[0] in ("cpu", "cuda")),
        ),
    )
    precision: Literal["auto", "float32", "float64", "bfloat16"] = param("auto")
    compile: Any = param("auto", either(one_of("auto"), flag()))
    checkpoint: Any = param(None, file_name())
    engine: Any = param("auto", ENGINE)

    epochs: ClassVar[tuple[int, int, int]] = EPOCHS
    small_batches: ClassVar[int] = 5000  # rows up to which a batch has 32 of them
    fine_rate: ClassVar[float] = 1.0  # of the step of Adam
    held_out_from: ClassVar[int] = 0  # rows from which on some are held out

    def __init_subclass__(cls, **more: Any) -> None:
        text = cls.__doc__ or ""  # python -OO leaves none
        for name, words in WORDS.items():
            text = text.replace(f"{{{name}}}", words)
        cls.__doc__ = text or None
        super().__init_subclass__(**more)


def asked_device(model: Any) -> tuple[Any, str]:
    """The device that ``engine`` and ``device`` ask for together (None: the data decide), and who
    asked, in the words of an error."""
    check(model, "engine", "device")
    engine, device = model.engine, model.device
    if engine == "auto":
        return device, f"device={device!r}"
    if device is not None and device.partition(":")[0] != engine:
        raise InputError(
            f"engine={engine!r} came with device={device!r}, which is no device of it; "
            "leave one of them out"
        )
    return device or engine, f"engine={engine!r}"


def held_out_share(model: Any, rows: int) -> float:
    """The share of rows that is held out: as asked for, or by their number."""
    if model.validation_fraction != "auto":
        return float(model.validation_fraction)
    return HELD_OUT if rows >= model.held_out_from else 0.0


def recipe_of(model: Any, rows: int, cuda: bool) -> Any:
    """The resolved options for data of ``rows`` training rows."""
    from eckart.nn.rules import LEARNING_RATES
    from eckart.nn.train import Recipe

    size = model.batch_size
    if size == "auto":
        size = 32 if rows < model.small_batches else 128 if rows < 20_000 else 1024 if cuda else 256
    size = min(int(size), max(rows, 1))
    epochs = model.max_iter
    if epochs is None:
        steps, least, most = model.epochs
        if not held_out_share(model, rows):
            steps *= 2  # the rate falls to its end in any case, and nothing ends the fit before
        epochs = int(np.clip(steps // max(1, -(-rows // size)), least, most))
    lr = (
        LEARNING_RATES[model.optimizer]
        if model.learning_rate == "auto"
        else float(model.learning_rate)
    )
    if model.learning_rate == "auto" and model.optimizer == "adam":
        lr *= model.fine_rate * float(np.sqrt(max(size, 256) / 256))
    return Recipe(
        model.optimizer,
        lr,
        model.schedule,
        int(epochs),
        size,
        int(model.patience),
        float(model.tol),
        None if model.clip is None else float(model.clip),
        float(model.weight_decay),
    )
