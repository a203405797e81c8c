"""Bounds of the steps that are written as LLVM vectors: with ``NUMBA_BOUNDSCHECK=1`` they raise
IndexError as plain indexing does; without it nothing is compiled. numba checks the indexing that it
compiles itself, and these steps compute addresses."""

from __future__ import annotations

from llvmlite import ir
from numba import config
from numba.core import cgutils

WORD = ir.IntType(64)


class Bounds:
    """The arrays of one step; an address of a step must lie in one of them."""

    def __init__(self, context, builder):
        self.context, self.builder = context, builder
        self.arrays = []
        # numba sets its attributes when it is loaded
        self.asked = bool(getattr(config, "BOUNDSCHECK", False))

    def add(self, view):
        """An array of the step, as numba's structure of it."""
        if self.asked:
            first = self.builder.ptrtoint(view.data, WORD)
            size = self.builder.mul(view.nitems, view.itemsize)
            self.arrays.append((first, self.builder.add(first, size)))

    def check_own(self, view, address):
        """An address lies in this array, which other addresses of the step need not know (its
        bounds may be computed in a loop)."""
        own = Bounds(self.context, self.builder)
        own.add(view)
        own.check(address, 1)

    def check(self, address, size):
        """``size`` bytes from an address on lie in one array of the step."""
        if not self.asked:
            return
        b = self.builder
        begin = b.ptrtoint(address, WORD)
        end = b.add(begin, ir.Constant(WORD, size))
        inside = ir.Constant(ir.IntType(1), 0)
        for first, last in self.arrays:
            here = b.and_(b.icmp_unsigned(">=", begin, first), b.icmp_unsigned("<=", end, last))
            inside = b.or_(inside, here)
        with cgutils.if_unlikely(b, b.not_(inside)):
            self.context.call_conv.return_user_exc(b, IndexError, ("a vector outside its array",))
