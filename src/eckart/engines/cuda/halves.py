"""Products with dense float32 rows on tensor cores, to the precision of float32: every number is a
pair of half-precision numbers.

    x_ij = c_j + (h_ij + l_ij / 2048) / s_j,      s_j a power of two that brings the largest
    deviation of a column to 2^14

Products of two numbers with 11 bits are exact, so that h h' + (h l' + l h') / 2048 loses l l'
alone, 2^-22 of a product. Tensor cores cut their sums off instead of rounding them, a bias of about
5e-9 of a sum for every term: sums run over ``TERMS`` of them, and from there on in float64.

Squares of rows of one matrix V that are gathered again and again, on tensor cores: V as pairs of
half-precision numbers (see ``halves``).

    s v = h + l / 2048,      s^2 sum_j v_j v_j^T = sum_j h h^T + (h l^T + l h^T) / 2048

with one power of two s for all columns, that brings the largest number to 2^14: numbers down to
2^-28 of it keep all 22 bits. A gathered pair is as large as the number, and nothing is split after
it was gathered.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from eckart.engines.cuda.held import Chunk
from eckart.engines.cuda.kernels import usable
from eckart.engines.cuda.kernels.rows import added, column_sums, halves, row_dots
from eckart.engines.cuda.kernels.squares import add_up

TERMS = 1024
"""Terms of a sum on tensor cores: its bias is then 5e-6 of it at the most, where all terms have one
sign."""
ROUGH_TERMS = 4096
"""The same of rough products, whose bias may be 2e-5."""
LOW = 2048.0
"""2^11: what brings the lower half of a number to the size of the upper one."""
TOP = 14
"""Powers of two that the largest number of a column takes: sums of two halves stay below the
largest half-precision number."""
BLOCK = 2**27
"""Numbers that are split at once."""
MULTIPLIED = 2**29
"""Numbers that are multiplied at once, four times as many by rough products: images take an eighth
of their memory, and fewer calls would save nothing more."""
SAMPLE = 32
"""One row of so many gives the first centre: a mean of all rows that is d away from it has a
variance of at least d^2 / SAMPLE, so that moving the centre loses no more than five bits."""


class HalfSums(NamedTuple):
    """Columns of rows: weight, mean, squares about it, and the largest deviation from its rounding
    ``near``."""

    weight: torch.Tensor
    mean: torch.Tensor
    square: torch.Tensor
    near: torch.Tensor
    most: torch.Tensor


def columns_of(x: torch.Tensor, w: torch.Tensor | None) -> HalfSums:
    """One pass over the rows."""
    rough = x[::SAMPLE].mean(0, dtype=torch.float64).to(x.dtype)
    first, square, _, most = column_sums(x, rough, w)
    weight = (
        torch.full((), float(len(x)), dtype=torch.float64, device=x.device)
        if w is None
        else w.sum()
    )
    some = torch.where(weight > 0, weight, 1.0)
    mean = rough.double() + first / some
    near = mean.to(x.dtype)
    square = (square - first * first / some).clamp(min=0.0)
    largest = weight.sqrt() if w is None else w.max().sqrt() if len(w) else weight
    shift = (near.double() - rough.double()).abs() * (1.0 if w is None else largest)
    return HalfSums(weight, mean, square, near, most + shift)


def scales_of(most: torch.Tensor) -> torch.Tensor:
    """s_j: powers of two, within the range of float32."""
    return torch.exp2((TOP - torch.frexp(most).exponent).clamp(-100, 100).double()).float()


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Batches of products of half-precision matrices, in float32."""
    if a.is_cuda:
        return torch.bmm(a, b, out_dtype=torch.float32)
    return torch.bmm(a.float(), b.float())


class Scatter(NamedTuple):
    """Weight, mean, sum of w (x - mean)(x - mean)^T and the same times a probe, by its own way
    through the rows."""

    weight: torch.Tensor
    mean: torch.Tensor
    scatter: torch.Tensor
    probed: torch.Tensor

    def merge(self, other: Scatter, probe: torch.Tensor) -> Scatter:
        """The pairwise update."""
        total = self.weight + other.weight
        some = torch.where(total > 0, total, 1.0)
        delta = other.mean - self.mean
        heavy = delta * (self.weight * other.weight / some)
        scatter = torch.addr(self.scatter + other.scatter, heavy, delta)
        probed = self.probed + other.probed + heavy * (delta @ probe)
        return Scatter(total, self.mean + delta * (other.weight / some), scatter, probed)


def scatter_of(x: torch.Tensor, w: torch.Tensor | None, probe: torch.Tensor) -> Scatter:
    """Of float32 rows: h^T h on and above the diagonal, h^T l whole."""
    n, m = x.shape[1], -(-x.shape[1] // 8) * 8
    sums = columns_of(x, w)
    scales = scales_of(sums.most)
    high = torch.zeros((m, m), dtype=torch.float64, device=x.device)
    cross = torch.zeros((m, m), dtype=torch.float32, device=x.device)
    step = max(TERMS, BLOCK // m // TERMS * TERMS)
    for a in range(0, len(x), step):
        part = halves(x[a : a + step], sums.near, scales, None if w is None else w[a : a + step], m)
        cross += product(part[None, :, :m].mT, part[None, :, m:])[0]
        even = len(part) // TERMS * TERMS
        for some in (part[:even].view(-1, TERMS, 2 * m), part[even:][None]):
            if some.shape[0] and some.shape[1]:
                for p in range(0, m, TERMS):
                    own = product(some[:, :, p : min(p + TERMS, m)].mT, some[:, :, p:m])
                    high[p : p + TERMS, p:] += added(own)
    high = torch.triu(high)
    high = high + torch.triu(high, 1).T + (cross + cross.T).double() / LOW
    back = 1.0 / scales.double()
    scatter = high[:n, :n] * back * back[:, None]
    probed = column_sums(x, sums.near, w, row_dots(x, sums.near, probe))[2]
    rest = sums.mean - sums.near.double()
    heavy = sums.weight * rest
    return Scatter(
        sums.weight, sums.mean, scatter - torch.outer(heavy, rest), probed - heavy * (rest @ probe)
    )


class Halves(NamedTuple):
    """Rows that are multiplied again and again: their halves, the centre and the scales."""

    pairs: torch.Tensor
    near: torch.Tensor
    back: torch.Tensor
    chunks: int
    width: int

    @classmethod
    def of(cls, x: torch.Tensor, sums: HalfSums) -> Halves:
        n = x.shape[1]
        chunks = max(1, -(-n // TERMS))
        width = -(-n // (8 * chunks)) * 8
        scales = scales_of(sums.most)
        return cls(
            halves(x, sums.near, scales, None, chunks * width),
            sums.near.double(),
            1.0 / scales.double(),
            chunks,
            width,
        )

    def gram_times(
        self, v: torch.Tensor, mean: torch.Tensor | None, w: torch.Tensor | None
    ) -> torch.Tensor:
        """(X - 1 mean^T)^T diag(w) (X - 1 mean^T) V, in float64.

        With d the centre less the mean, the rows less the mean are those less the centre plus d: V
        gives one more number for each column, and its image one more product.
        """
        n, columns = v.shape
        b = -(-columns // 8) * 8  # rows of halves then begin at multiples of 32 bytes
        wide = torch.nn.functional.pad(v.double(), (0, b - columns))
        shift = self.near if mean is None else self.near - mean
        both, scale = _split(_padded(wide * self.back[:, None], self.chunks * self.width))
        offset = shift @ wide
        zero = torch.zeros_like(both[:, b:])
        right = torch.cat([both, torch.cat([zero, both[:, :b]], 1)]).view(
            2 * self.chunks, self.width, 2 * b
        )
        total = torch.zeros((self.chunks * self.width, b), dtype=torch.float64, device=v.device)
        sums = torch.zeros(b, dtype=torch.float64, device=v.device)
        m = len(total)
        step = max(TERMS, MULTIPLIED // m // TERMS * TERMS)
        for a in range(0, len(self.pairs), step):
            rows = self.pairs[a : a + step]
            y = added(
                product(rows.view(len(rows), 2 * self.chunks, self.width).transpose(0, 1), right)
            )
            y = (y[:, :b] + y[:, b:] / LOW) / scale + offset
            if w is not None:
                y = y * w[a : a + step, None]
            sums += y.sum(0)
            halved, size = _split(y)
            even = len(rows) // TERMS * TERMS
            for part, own in (
                (rows[:even].view(-1, TERMS, 2 * m), halved[:even].view(-1, TERMS, 2 * b)),
                (rows[even:][None], halved[even:][None]),
            ):
                if part.shape[0] and part.shape[1]:
                    z = added(product(part.mT, own))
                    total += (z[:m, :b] + (z[:m, b:] + z[m:, :b]) / LOW) / size
        return (total[:n] * self.back[:, None] + torch.outer(shift, sums))[:, :columns]

    def rough_gram_times(
        self, v: torch.Tensor, mean: torch.Tensor | None, w: torch.Tensor | None
    ) -> torch.Tensor:
        """The same with the upper halves of the rows alone, and of their images: half of the bytes,
        less than half of the products.

        Rounding x to 11 bits adds noise that is the same in every product (of a positive
        semidefinite matrix near the true one); what is left out of the images is other noise in
        every row, 2^-12 of it, and their sum over N rows has 2^-12 / sqrt(N).
        """
        n, columns = v.shape
        b, m = -(-columns // 8) * 8, self.chunks * self.width
        wide = torch.nn.functional.pad(v.double(), (0, b - columns))
        shift = self.near if mean is None else self.near - mean
        both, scale = _split(_padded(wide * self.back[:, None], m))
        offset, back = (shift @ wide).float(), (1.0 / scale).float()
        total = torch.zeros((m, b), dtype=torch.float64, device=v.device)
        sums = torch.zeros(b, dtype=torch.float64, device=v.device)
        step = max(ROUGH_TERMS, 4 * MULTIPLIED // m // ROUGH_TERMS * ROUGH_TERMS)
        for a in range(0, len(self.pairs), step):
            rows = self.pairs[a : a + step, :m]
            y = product(rows[None], both[None])[0]
            y = torch.addcmul(offset, y[:, :b] + y[:, b:] / LOW, back)
            if w is not None:
                y = y * w[a : a + step, None].float()
            sums += y.sum(0, dtype=torch.float64)
            size = torch.exp2(
                (TOP - torch.frexp(y.abs().amax(0)).exponent).clamp(-100, 100).float()
            )
            high, even = (y * size).half(), len(rows) // ROUGH_TERMS * ROUGH_TERMS
            for part, own in (
                (
                    rows[:even].unflatten(0, (-1, ROUGH_TERMS)),
                    high[:even].unflatten(0, (-1, ROUGH_TERMS)),
                ),
                (rows[even:][None], high[even:][None]),
            ):
                if part.shape[0] and part.shape[1]:
                    total += added(product(part.mT, own)) / size
        return (total[:n] * self.back[:, None] + torch.outer(shift, sums))[:, :columns]


def _padded(v: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.nn.functional.pad(v, (0, 0, 0, rows - len(v)))


def _split(v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Columns times powers of two as their upper halves, then their lower ones; and these
    powers."""
    scale = torch.exp2((TOP - torch.frexp(v.abs().amax(0)).exponent).clamp(-1000, 1000).double())
    scaled = (v * scale).float()
    high = scaled.half()
    return torch.cat([high, ((scaled - high.float()) * LOW).half()], 1), scale


class Paired(NamedTuple):
    """Rows of h beside l (an even number of columns) with a row of zeros below, and 1 / s^2."""

    pairs: torch.Tensor
    back: torch.Tensor

    @classmethod
    def of(cls, v: torch.Tensor) -> Paired:
        most = v.abs().amax() if v.numel() else v.new_zeros(())
        scale = torch.exp2((TOP - torch.frexp(most).exponent).clamp(-60, 60).float())
        scaled = torch.nn.functional.pad(v.float() * scale, (0, 0, 0, 1))
        high = scaled.half()
        return cls(torch.cat([high, ((scaled - high.float()) * LOW).half()], 1), 1.0 / scale**2)

    def down(self, chunk: Chunk, base: torch.Tensor | None, ridge: torch.Tensor) -> torch.Tensor:
        """sum_j v_j v_j^T + P + l_i I of the rows of a chunk, of which the lower triangle is
        promised."""
        pairs = chunk.pieces(self._gathered(chunk))
        k = pairs.shape[2] // 2
        high = pairs[:, :, :k]
        whole, cross = (chunk.whole(product(high.mT, other)) for other in (high, pairs[:, :, k:]))
        return self._added(whole, cross, base, ridge[chunk.rows])

    def across(self, chunk: Chunk) -> torch.Tensor:
        """I + (v_j . v_j') of the entries of each row of a chunk, of which the lower triangle is
        promised."""
        pairs = self._gathered(chunk)
        k = pairs.shape[2] // 2
        high, low = pairs[:, :, :k], pairs[:, :, k:]
        return self._added(
            product(high, high.mT),
            product(high, low.mT),
            None,
            torch.ones(len(pairs), device=pairs.device),
        )

    def _gathered(self, chunk: Chunk) -> torch.Tensor:
        """rows x length x 2 k, moved in pieces of 8 bytes."""
        return self.pairs.view(torch.int64)[chunk.columns].view(torch.float16)

    def _added(
        self,
        whole: torch.Tensor,
        cross: torch.Tensor,
        base: torch.Tensor | None,
        ridge: torch.Tensor,
    ) -> torch.Tensor:
        if usable(whole):
            return add_up(
                whole,
                cross,
                self.back,
                None if base is None else base.float().contiguous(),
                ridge.float(),
            )
        out = (whole + (cross + cross.mT) / LOW) * self.back
        out = out if base is None else out + base.float()
        out.diagonal(dim1=1, dim2=2).add_(ridge.float()[:, None])
        return out
