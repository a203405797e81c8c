"""Kernels that other processes compile while a first fit is at its first ones: the list is true,
and a fit never depends on it."""

import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from numba.core import types
from numba.core.dispatcher import Dispatcher

import first_kernels
from eckart.engines.cpu import ahead, kernel_names
from eckart.engines.cpu.kernel_names import dispatcher_of, spelled, unspelled

ENGINE = Path(ahead.__file__).parent
COMPILED = sorted(
    f"eckart.engines.cpu.{'.'.join(file.relative_to(ENGINE).with_suffix('').parts)}"
    for file in ENGINE.rglob("*.py")
    if "@njit" in file.read_text()
)
KERNELS = sorted(
    {place for orders in ahead.recorded().values() for order in orders for place, _ in order}
)


@pytest.mark.parametrize("place", KERNELS)
def test_every_kernel_of_the_list_is_there_and_takes_such_arguments(place):
    kernel = dispatcher_of(place)
    assert kernel.targetoptions.get("nogil")
    for orders in ahead.recorded().values():
        for args in (args for order in orders for at, args in order if at == place):
            assert len(args) == len(inspect.signature(kernel.py_func).parameters)
            assert [spelled(unspelled(a)) for a in args] == args


def test_every_model_that_is_recorded_has_kernels():
    assert set(ahead.recorded()) == set(first_kernels.FITS)
    assert all(len(order) > 1 for orders in ahead.recorded().values() for order in orders)


@pytest.mark.parametrize("module", COMPILED)
def test_kernels_that_several_files_call_say_how_they_round(module):
    """Else numba compiles them with the ``fastmath`` of whoever calls first, for all who call
    later."""
    borrowed = [
        k
        for k in vars(importlib.import_module(module)).values()
        if isinstance(k, Dispatcher) and k.py_func.__module__ != module
    ]
    assert [
        k.__name__
        for k in borrowed
        if "fastmath" not in k.targetoptions and "inline" not in k.targetoptions
    ] == []


def test_a_type_that_cannot_be_spelled_is_refused():
    with pytest.raises(ValueError, match="cannot be spelled"):
        spelled(types.unicode_type)


IN_THE_CACHE = """
from eckart.engines.cpu.kernel_names import dispatcher_of, unspelled
place, args = {kernel!r}
kernel = dispatcher_of(place)
kernel.compile(tuple(map(unspelled, args)))
print(sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()))
"""


def test_what_another_process_compiled_is_found(tmp_path):
    model, at, i, kernel = min(
        (
            (m, at, i, k)
            for m, orders in ahead.recorded().items()
            for at, o in enumerate(orders)
            for i, k in enumerate(o)
        ),
        key=lambda found: len(str(found[3])),  # few arguments: soon compiled
    )
    left = len(ahead.recorded()[model][at]) - i
    share = (
        f"from eckart.engines.cpu.ahead import compile_share; compile_share({model!r}, {at}, "
        f"{i}, {left - 1}, {left})"
    )
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", share], env=env, check=True, timeout=60)
    code = IN_THE_CACHE.format(kernel=kernel)
    told = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert told.stdout.split() == ["1", "0"]


@pytest.fixture
def started(monkeypatch):
    """Commands of processes that would have been started."""
    commands: list[list[str]] = []

    class Started:
        def __init__(self, command, **named):
            commands.append(command)

        def wait(self):
            pass

    monkeypatch.setattr(ahead.subprocess, "Popen", Started)
    monkeypatch.setattr(ahead.os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.delenv(ahead.SWITCH, raising=False)
    return commands


def compiling(model: str, place: str, args: list) -> None:
    """What numba says when a kernel is being compiled in a fit of that model."""
    listener = kernel_names._Listener(ahead.send)
    listener.model = model
    told = SimpleNamespace(
        data={"dispatcher": dispatcher_of(place), "args": tuple(map(unspelled, args))}
    )
    listener.on_start(told)
    listener.on_start(told)  # the next kernel sends nobody again


def test_the_first_kernel_sends_others_ahead_once(started):
    order = ahead.recorded()["ALS"][0]
    compiling("ALS", *order[0])
    assert len(started) == min(ahead.MOST, (len(order) - 1) // ahead.WORTH)
    assert all("compile_share('ALS', 0, 1" in command[-1] for command in started)


@pytest.mark.parametrize(
    "reason", ["switch", "one core", "another program", "another model", "the last kernel"]
)
def test_nobody_is_sent_where_it_would_not_help(started, monkeypatch, reason):
    order = ahead.recorded()["ALS"][0]
    if reason == "switch":
        monkeypatch.setenv(ahead.SWITCH, "0")
    elif reason == "one core":
        monkeypatch.setattr(ahead.os, "sched_getaffinity", lambda pid: {0}, raising=False)
    elif reason == "another program":
        monkeypatch.setattr(sys, "executable", "/opt/notebook-app")
    compiling(
        "PMI" if reason == "another model" else "ALS",
        *order[-1 if reason == "the last kernel" else 0],
    )
    assert started == []


def test_a_fit_goes_on_where_no_process_can_be_started(started, monkeypatch):
    tried = []

    def refuse(command, **named):
        tried.append(command)
        raise OSError("no more processes")

    monkeypatch.setattr(ahead.subprocess, "Popen", refuse)
    compiling("ALS", *ahead.recorded()["ALS"][0][0])
    assert tried


@pytest.mark.slow
@pytest.mark.parametrize("model", first_kernels.FITS)
def test_first_fits_compile_what_the_list_says(model):
    listed = [[list(kernel) for kernel in order] for order in ahead.recorded()[model]]
    for order in first_kernels.orders_of(model):
        assert order in listed, (
            "kernels have changed: python tests/first_kernels.py writes the list anew"
        )
