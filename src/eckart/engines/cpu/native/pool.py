"""Words of memory that threads share, and calls by address, for kernels: no thread that uses them
needs the interpreter.

Every reading and writing here is sequentially consistent: two threads that each write one word and
then read the other's cannot both see the old one, which is what falling asleep and being woken
rests on.

A pool of threads that take parts of a kernel's work without the interpreter.

A thread of Python that is woken for a piece of work waits twice: for its wake, and for the
interpreter's lock, which sixteen threads want one after another; on 16 cores a piece of work cost 1
to 2 ms so. The threads of this thread pool stay inside one compiled loop. They find the kernel's address
and its arguments on a board, take parts by counters, and wait for the next board: awake for a
moment, since the next one mostly comes soon, then asleep at a semaphore.

Which thread does which part is open; a part writes what belongs to it alone, and the caller adds
parts up in their order: bits never depend on it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import threading
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, typeof, types
from numba.core import cgutils
from numba.extending import intrinsic

from eckart.compiling import INSIDE, OUTSIDE
from eckart.scheduler import run_lanes, single_threaded_blas

WORD = ir.IntType(64)
PAUSE = "llvm.x86.sse2.pause" if platform.machine() in ("x86_64", "AMD64") else ""
"""The instruction that tells a core that it only waits, so that a thread beside it on the same core
gets its turn."""


def _at(builder, address):
    return builder.inttoptr(address, WORD.as_pointer())


@intrinsic
def load(typingctx, address):
    """The word at an address."""

    def codegen(context, builder, signature, args):
        return builder.load_atomic(_at(builder, args[0]), "seq_cst", 8)

    return types.int64(types.int64), codegen


@intrinsic
def exchange(typingctx, address, value):
    """Write a word; returns what was there."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("xchg", _at(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def fetch_add(typingctx, address, value):
    """Add to a word; returns what was there."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("add", _at(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def exchange_if(typingctx, address, old, new):
    """Write ``new`` where ``old`` is; whether it was."""

    def codegen(context, builder, signature, args):
        found = builder.cmpxchg(_at(builder, args[0]), args[1], args[2], "seq_cst", "seq_cst")
        return builder.extract_value(found, 1)

    return types.boolean(types.int64, types.int64, types.int64), codegen


@intrinsic
def pause(typingctx):
    """Wait for some tens of cycles."""

    def codegen(context, builder, signature, args):
        if PAUSE:
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, PAUSE), [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def call_c(typingctx, function, argument):
    """``int function(void *)`` of the C library by its address."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.IntType(32), [WORD])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def call_part(typingctx, function, given, part, who):
    """``function(given, part, who)``, a function that ``published`` made."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [WORD] * 3)
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), codegen


def _called(context, builder, answer, kinds, address, values):
    """``kernel(*values)`` by the address of its code, with numba's own convention for arguments of
    these types."""
    kind = context.call_conv.get_function_type(answer, kinds)
    pointer = builder.inttoptr(address, kind.as_pointer())
    return context.call_conv.call_function(builder, pointer, answer, kinds, values)[1]


@intrinsic
def call_kernel(typingctx, kernel, arguments):
    """``kernel(*arguments)``, whose address was found for exactly these types
    (``pool.address_of``). Called by its name its code would be compiled once more inside the
    caller."""

    def codegen(context, builder, signature, args):
        values = cgutils.unpack_tuple(builder, args[1])
        _called(context, builder, types.none, tuple(signature.args[1].types), args[0], values)
        return context.get_dummy_value()

    return types.void(types.int64, arguments), codegen


@intrinsic
def call_for_number(typingctx, kernel, arguments):
    """The same for a kernel that returns a float64."""

    def codegen(context, builder, signature, args):
        values = cgutils.unpack_tuple(builder, args[1])
        return _called(
            context, builder, types.float64, tuple(signature.args[1].types), args[0], values
        )

    return types.float64(types.int64, arguments), codegen


def _lent(context, builder, kind, value):
    """The same value with arrays that own nothing: what counts their references lives only as long
    as the call from Python that brought them."""
    if isinstance(kind, types.Array):
        view = context.make_array(kind)(context, builder, value)
        view.meminfo = cgutils.get_null_value(view.meminfo.type)
        return view._getvalue()
    if isinstance(kind, types.BaseTuple):
        values = cgutils.unpack_tuple(builder, value)
        kinds: Any = kind
        return context.make_tuple(
            builder, kind, [_lent(context, builder, k, v) for k, v in zip(kinds, values)]
        )
    return value


ROOM = 4096
"""Bytes for the arguments of a kernel: 80 matrices."""


@intrinsic
def published(typingctx, board, kernel, arguments):
    """Write the address of a kernel and its arguments into the memory at ``board``; returns the
    address of a function ``(board, part, who)`` that reads them from there and calls ``kernel(part,
    who, *arguments)``.

    The kernel is called by its address, so that its code is compiled once, however it is called.
    The caller keeps the arguments alive.
    """
    kinds = (types.int64, types.int64, *arguments.types)

    def codegen(context, builder, signature, args):
        lent = _lent(context, builder, signature.args[2], args[2])
        values = [args[1], *cgutils.unpack_tuple(builder, lent)]
        layout = ir.LiteralStructType([value.type for value in values])
        if context.get_abi_sizeof(layout) > ROOM:
            raise ValueError("the arguments of a kernel take more room than there is")
        place = builder.inttoptr(args[0], layout.as_pointer())
        for i, value in enumerate(values):
            builder.store(value, cgutils.gep_inbounds(builder, place, 0, i))
        module = builder.module
        kind = ir.FunctionType(ir.VoidType(), [WORD] * 3)
        entry = ir.Function(module, kind, module.get_unique_name("eckart_part"))
        entry.linkage = "internal"
        inside = ir.IRBuilder(entry.append_basic_block())
        place = inside.inttoptr(entry.args[0], layout.as_pointer())
        address, *rest = (
            inside.load(cgutils.gep_inbounds(inside, place, 0, i))
            for i in range(len(layout.elements))
        )
        _called(context, inside, types.none, kinds, address, [*entry.args[1:], *rest])
        inside.ret_void()
        return builder.ptrtoint(entry, WORD)

    return types.int64(types.int64, types.int64, arguments), codegen


LINE = 64  # bytes of a cache line: what one thread writes shares none with what another reads
COUNT, CALLED_UP, FUNCTION, GIVEN, CALLER_ASLEEP = 0, 8, 16, 24, LINE
OWN = (
    2 * LINE
    # from here on a line for each thread, the caller's first: its state, whether it sleeps, and the
    # next part of its share
)
SLEEPS, NEXT = 8, 16
IDLE, CALLED, WORKING = 0, 1, 2
SIDE_BY_SIDE = 4
"""Pools at the most: callers at the same time, such as the chains of a sampler, have one each, and
each its share of the threads."""
MOST = 255
"""Threads of a thread pool at the most."""
SEMAPHORE = 64  # bytes; glibc's takes 32
PAUSES = 500
"""Looks at the own word with a pause of some 40 to 140 cycles between them: about 20 microseconds,
what a wake by the system would cost at the least."""
YIELDS, MORE_YIELDS, MANY = 300, 1500, 4
"""Looks after that which give the core away if another program wants it: about 0.2 ms, longer than
what most solvers do between two pieces of work. Where ``MANY`` threads or more were called, 1 ms:
waking sixteen one after another takes a tenth of a millisecond, as long as many pieces of work, and
two cores are not kept from other programs by it."""


@njit(**INSIDE)
def wake(board, semaphores, post, who):
    """Wake the thread ``who`` if it is called and sleeps."""
    own = board + OWN + who * LINE
    if load(own) == CALLED and exchange_if(own + SLEEPS, 1, 0):
        call_c(post, semaphores + who * SEMAPHORE)


@njit(**INSIDE)
def keep_looking(looks, give_way, called):
    """Wait a moment before the next look; False where there were so many that it is time to sleep.
    ``called`` threads were called last."""
    most = PAUSES + (MORE_YIELDS if called >= MANY else YIELDS)
    if looks < PAUSES:
        pause()
    elif looks < most:
        call_c(give_way, 0)
    return looks < most


@njit(**INSIDE)
def next_part(board, who):
    """The next part of one's own share, or of another's where that is done; -1 where all are. The
    same rows mostly come to the same thread in one piece of work after another, so that they are
    still in its core's cache."""
    count, threads = load(board + COUNT), load(board + CALLED_UP) + 1
    for step in range(threads):
        other = who + step if who + step < threads else who + step - threads
        end = (other + 1) * count // threads
        at = board + OWN + other * LINE + NEXT
        if load(at) < end:
            part = fetch_add(at, 1)
            if part < end:
                return part
    return -1


@njit(**OUTSIDE)
def serve(board, semaphores, wait, post, give_way, who):
    """The life of a thread."""
    own = board + OWN + who * LINE
    while True:
        looks = 0
        while load(own) != CALLED:
            looks += 1
            if not keep_looking(looks, give_way, load(board + CALLED_UP)):
                exchange(own + SLEEPS, 1)
                if load(own) != CALLED:
                    call_c(wait, semaphores + who * SEMAPHORE)
                exchange(own + SLEEPS, 0)
        if not exchange_if(own, CALLED, WORKING):
            continue  # called back: the work was over
        for other in range(2 * who + 1, min(2 * who + 3, load(board + CALLED_UP) + 1)):
            wake(board, semaphores, post, other)
        function, given = load(board + FUNCTION), load(board + GIVEN)
        part = next_part(board, who)
        while part >= 0:
            call_part(function, given, part, who)
            part = next_part(board, who)
        exchange(own, IDLE)
        if exchange_if(board + CALLER_ASLEEP, 1, 0):
            call_c(post, semaphores)


@njit(**OUTSIDE)
def publish(given, kernel, arguments):
    return published(given, kernel, arguments)


@njit(**OUTSIDE)
def call_up(board, semaphores, post, function, given, count, called):
    """Put the work on the board and call threads 1 .. ``called``. Each that starts wakes two
    others, and the caller, who is thread 0, the first two."""
    exchange(board + FUNCTION, function)
    exchange(board + GIVEN, given)
    exchange(board + COUNT, count)
    exchange(board + CALLED_UP, called)
    for who in range(called + 1):
        exchange(board + OWN + who * LINE + NEXT, who * count // (called + 1))
    for who in range(1, called + 1):
        exchange(board + OWN + who * LINE, CALLED)
    for who in range(1, min(3, called + 1)):
        wake(board, semaphores, post, who)


@njit(**OUTSIDE)
def work(board, semaphores, wait, give_way):
    """One part by the caller; False when none is left and no thread is at one any more."""
    part = next_part(board, 0)
    if part >= 0:
        call_part(load(board + FUNCTION), load(board + GIVEN), part, 0)
        return True
    finish(board, semaphores, wait, give_way)
    return False


@njit(**OUTSIDE)
def finish(board, semaphores, wait, give_way):
    """No part is begun from now on; those who have not started are called back, the others are
    waited for."""
    called, count = load(board + CALLED_UP), load(board + COUNT)
    for who in range(called + 1):
        exchange(board + OWN + who * LINE + NEXT, count)
    for who in range(1, called + 1):
        own = board + OWN + who * LINE
        if exchange_if(own, CALLED, IDLE):
            continue
        looks = 0
        while load(own) == WORKING:
            looks += 1
            if not keep_looking(looks, give_way, called):
                exchange(board + CALLER_ASLEEP, 1)
                if load(own) == WORKING:
                    call_c(wait, semaphores)
                exchange(board + CALLER_ASLEEP, 0)


@njit(**OUTSIDE)
def load_word(address):
    """The word at an address, for those who look at the board from outside."""
    return load(address)


class _ThreadPool:
    """The threads of this process, their board and their semaphores."""

    def __init__(self, library: Any):
        self.lock, self.size = threading.Lock(), 0
        self.memory = np.zeros(
            OWN + (MOST + 1) * LINE + (MOST + 1) * SEMAPHORE + ROOM + LINE, np.uint8
        )
        ctypes.pythonapi.Py_IncRef(
            ctypes.py_object(self.memory)
        )  # for ever: threads look at it until the process is gone
        self.board = int(self.memory.ctypes.data) // LINE * LINE + LINE
        self.semaphores = self.board + OWN + (MOST + 1) * LINE
        self.given = self.semaphores + (MOST + 1) * SEMAPHORE
        self.held: Any = None
        self.wait, self.post, self.give_way = (
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value
            for name in ("sem_wait", "sem_post", "sched_yield")
        )
        for i in range(MOST + 1):
            if library.sem_init(ctypes.c_void_p(self.semaphores + i * SEMAPHORE), 0, 0):
                raise OSError("no semaphore")
        # compiled here, not while threads wait
        work(self.board, self.semaphores, self.wait, self.give_way)

    def grow(self, size: int) -> None:
        while self.size < min(size, MOST):
            self.size += 1
            given = (self.board, self.semaphores, self.wait, self.post, self.give_way, self.size)
            threading.Thread(target=serve, args=given, name="eckart", daemon=True).start()

    def run(self, kernel: int, count: int, arguments: tuple, threads: int) -> None:
        self.grow(threads - 1)
        # alive until the next work, should an interrupt leave a thread behind
        self.held = arguments
        try:
            function = publish(self.given, kernel, arguments)
            call_up(
                self.board,
                self.semaphores,
                self.post,
                function,
                self.given,
                count,
                min(threads - 1, self.size),
            )
            while work(self.board, self.semaphores, self.wait, self.give_way):
                pass  # back in Python after each part: an interrupt is noticed
        except BaseException:
            while True:
                try:
                    finish(self.board, self.semaphores, self.wait, self.give_way)
                    break
                except KeyboardInterrupt:  # once more: no thread may be left at arrays that go away
                    pass
            raise
        self.held = None


_pools: dict[int, list[_ThreadPool]] = {}
_addresses: dict[Any, int] = {}


def pool(free: bool = False) -> _ThreadPool | None:
    """A thread pool of this process (a forked one gets its own): the first, or one that is ``free``, whose
    lock is taken then. None where the system has no semaphores of this kind, or all pools are at
    work."""
    found = _pools.setdefault(os.getpid(), [])
    for team in tuple(found):
        if not free or team.lock.acquire(blocking=False):
            return team
    if len(found) >= SIDE_BY_SIDE or os.name != "posix" or hasattr(ctypes, "windll"):
        return None
    try:
        fresh = _ThreadPool(ctypes.CDLL(None))
    except (OSError, AttributeError):
        return None
    if free:
        fresh.lock.acquire()
    found.append(fresh)
    if fresh not in found[:SIDE_BY_SIDE]:  # others made theirs at the same moment
        found.remove(fresh)
        return None
    return fresh


def _form(value: Any) -> Any:
    """What numba's type of a value depends on, found faster than the type itself."""
    if isinstance(value, np.ndarray):
        return value.dtype.char, value.ndim, value.flags.num
    if isinstance(value, tuple):
        return type(value), *map(_form, value)
    return type(value)


def address_of(kernel: Any, arguments: tuple) -> int:
    """The address of a kernel's code for arguments like these."""
    form = kernel, _form(arguments)
    if form not in _addresses:
        kinds = tuple(map(typeof, arguments))
        known = kernel.overloads.get(kinds)
        if known is None:
            kernel.compile(kinds)
            known = kernel.overloads[kinds]
        _addresses[form] = int(known.library.get_pointer_to_function(known.fndesc.llvm_func_name))
    return _addresses[form]


def run_parts(kernel: Any, count: int, arguments: tuple, threads: int) -> None:
    """``kernel(part, who, *arguments)`` for every part below ``count`` on up to ``threads``
    threads; ``who`` < threads tells them apart, for their scratch space. A kernel may not raise,
    and writes only what belongs to its part or to ``who``.

    An interrupt ends it after the parts in flight. Where other threads of this process have all the
    pools, threads of Python do the same work.
    """
    threads = min(threads, count)
    with single_threaded_blas():
        if threads <= 1:
            for part in range(count):
                kernel(part, 0, *arguments)
            return
        team = pool(free=True)
        if team is not None:
            try:
                team.run(address_of(kernel, (0, 0, *arguments)), count, arguments, threads)
            finally:
                team.lock.release()
            return
        numbers = itertools.count()

        def step(_: Any, part: int, scratch: dict) -> None:
            if "who" not in scratch:
                scratch["who"] = next(numbers)
            kernel(part, scratch["who"], *arguments)

        run_lanes(range(count), [None] * count, step, threads)
