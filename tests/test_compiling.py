"""How kernels are compiled: what kernels call is code to be linked alone, what Python calls is
executable, cached, and gives the numbers of plain Python."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from numba import njit
from numba.core import caching

from eckart import compiling
from eckart.compiling import INSIDE, OUTSIDE


@njit(**INSIDE)
def cube(v):
    return v * v * v


@njit(**INSIDE)
def cubes(x, out):
    for i in range(len(x)):
        out[i] = cube(x[i])


@njit(**(OUTSIDE | {"cache": False}))
def sum_of_cubes(x):
    out = np.empty_like(x)
    cubes(x, out)
    return out.sum()


def test_kernels_that_call_kernels_give_the_numbers_of_plain_python():
    x = np.arange(5.0)
    assert sum_of_cubes(x) == sum(v**3 for v in x)
    kinds = [
        type(next(iter(kernel.overloads.values())).library)
        for kernel in (cube, cubes, sum_of_cubes)
    ]
    assert kinds == [compiling._Part, compiling._Part, compiling._WholeModule]
    assert gc.isenabled()


def test_what_was_compiled_by_one_process_is_loaded_by_the_next(tmp_path):
    (tmp_path / "kernels.py").write_text(
        textwrap.dedent("""
            from numba import njit
            from eckart.compiling import INSIDE, OUTSIDE

            @njit(**INSIDE)
            def halved(v):
                if v < 0:
                    raise ValueError("negative")
                return v / 2

            @njit(**OUTSIDE)
            def quartered(v):
                return halved(halved(v))

            try:
                quartered(-1.0)
            except ValueError as error:
                print(error, quartered(8.0), len(quartered.stats.cache_hits))
        """)
    )
    said = [
        subprocess.run(
            [sys.executable, "kernels.py"], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert said == ["negative 2.0 0\n", "negative 2.0 1\n"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_an_interrupt_while_a_kernel_compiles_comes_right_after(tmp_path):
    """LLVM's call back lost it, and numba had no kernel to keep: a RuntimeError."""
    (tmp_path / "kernels.py").write_text(
        textwrap.dedent("""
            import os, signal
            from numba import njit
            from numba.core.codegen import JITCodeLibrary
            from eckart.compiling import OUTSIDE

            keep = JITCodeLibrary._object_compiled_hook

            def interrupted(module, code):
                if numba_is_ready:
                    os.kill(os.getpid(), signal.SIGINT)
                keep(module, code)

            JITCodeLibrary._object_compiled_hook = interrupted
            numba_is_ready = False
            njit(lambda v: v)(8.0)
            numba_is_ready = True

            @njit(**OUTSIDE)
            def halved(v):
                return v / 2

            usual = signal.getsignal(signal.SIGINT)
            try:
                halved(8.0)
            except KeyboardInterrupt:
                print("interrupted", signal.getsignal(signal.SIGINT) is usual)
        """)
    )
    done = subprocess.run(
        [sys.executable, "kernels.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("interrupted True\n", "")


def test_an_old_numba_is_named_with_what_to_install():
    with pytest.raises(
        ImportError, match=r"needs numba >= 0.63, found 0.60.0; pip install --upgrade numba"
    ):
        compiling._check_numba("0.60.0")
    compiling._check_numba("0.63.0")
    compiling._check_numba("1.0.0rc1")


class Renamed:
    """A class that a kernel's list of compiled forms names, and that an update takes away."""


def test_a_list_of_compiled_forms_that_names_a_class_of_before_is_empty(tmp_path, monkeypatch):
    file = caching.IndexDataCacheFile(str(tmp_path), "kernel", "stamp")
    file._save_index({Renamed: "kernel.1.nbc"})
    assert list(file._load_index().values()) == ["kernel.1.nbc"]
    monkeypatch.delattr(sys.modules[__name__], "Renamed")
    assert file._load_index() == {}
