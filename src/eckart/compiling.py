"""How kernels are compiled: once, in as little time as their speed allows.

numba optimises every function three times (alone, before and after what it calls is linked in) and
makes machine code of each, although the code of a function that other kernels call is inlined there
and optimised again. A kernel that calls a kernel that calls a kernel is so worked on nine times.
Here

- ``INSIDE`` is for what only other kernels call: it stays as it was written until it is linked into
  its caller. No machine code, no place in the cache;
- ``OUTSIDE`` is for what Python calls: optimised once, whole, with all that it calls.

Python's collector of cycles rests meanwhile: compiling makes many objects, few of them garbage, and
the collector would look at each again and again. An interrupt waits: LLVM calls Python back, where
what is raised is lost, and the kernel with it.
"""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba

LEAST_NUMBA = (0, 63)
"""The first version with the parts of the compiler that are used below."""


def _check_numba(version: str) -> None:
    """Say what to install where the parts of numba that are used here are not there yet."""
    if tuple(int(part) for part in version.split(".")[:2]) < LEAST_NUMBA:
        least = ".".join(map(str, LEAST_NUMBA))
        raise ImportError(
            f"eckart needs numba >= {least}, found {version}; pip install --upgrade numba"
        )


try:
    from numba.core.caching import IndexDataCacheFile
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import Compiler, CompileResult
    from numba.core.compiler_machinery import AnalysisPass, PassManager, register_pass
    from numba.core.event import TimingListener, register
    from numba.core.typed_passes import AnnotateTypes
except ImportError:
    _check_numba(numba.__version__)
    raise
_check_numba(numba.__version__)


def _index_of_this_version(load: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """numba's reading of the list of compiled forms of a kernel; one that names a class which an
    update has moved or renamed is empty, so that the kernel is compiled again."""

    def load_index(self: Any) -> Any:
        try:
            return load(self)
        except (AttributeError, ImportError):
            return {}

    return load_index


IndexDataCacheFile._load_index = _index_of_this_version(  # type: ignore[method-assign]
    IndexDataCacheFile._load_index
)


class _WholeModule(JITCodeLibrary):  # type: ignore[misc]
    """Code that is optimised as a whole, and not function by function before that."""

    def _optimize_functions(self, ll_module: Any) -> None:
        # what the passes for each function would have done first
        ll_module.data_layout = self._codegen._data_layout


class _NoPlace:
    """Code that is nowhere in memory has no place for the objects that numba keeps for Python's
    sake."""

    @staticmethod
    def set_env(env_name: str, env: Any) -> None:
        pass


class _Part(_WholeModule):
    """Code that waits to be linked into other code: neither optimised nor made executable."""

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> type[_NoPlace]:
        return _NoPlace


@register_pass(mutates_CFG=False, analysis_only=True)
class _GiveLibrary(AnalysisPass):  # type: ignore[misc]
    """Say where the code of this function goes, before it is written."""

    _name = "eckart_give_library"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        kind = _Part if state.flags.no_cpython_wrapper else _WholeModule
        state.library = kind(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return False


@contextmanager
def _collector_resting() -> Iterator[None]:
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _interrupts_waiting() -> Iterator[None]:
    """Hold Ctrl-C back for as long, and deliver it then. Only the main thread hears of it; a
    process that Ctrl-C ends at once, or leaves alone, stays as it is."""
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if came:
            signal.raise_signal(signal.SIGINT)


class Light(Compiler):  # type: ignore[misc]
    """numba's compiler with libraries of the two kinds."""

    def define_pipelines(self) -> list[PassManager]:
        pipelines = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.add_pass_after(_GiveLibrary, AnnotateTypes)
            pipeline.finalize()
        return list(pipelines)

    def compile_extra(self, func: Any) -> CompileResult:
        with _interrupts_waiting(), _collector_resting():
            return super().compile_extra(func)


_SPENT = TimingListener()
register("numba:compile", _SPENT)


def compiling_seconds() -> float:
    """Seconds that this process has spent on compiling kernels so far."""
    return float(_SPENT.duration) if _SPENT.done else 0.0


OUTSIDE: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": Light,
}
"""For kernels that Python calls."""

INSIDE: dict[str, Any] = {
    "nogil": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": Light,
}
"""For what only other kernels call. Python must not call it: there would be nothing to run. What
several files call says its ``fastmath`` itself: numba would take that of the first caller, and the
bits of all others would depend on which model a process had fitted first."""
