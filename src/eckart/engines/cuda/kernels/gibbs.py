"""One sweep of the collapsed Gibbs sampler: a program walks over the tokens of a document, one
after the other.

    p(z) proportional to  (n_dz + a_z) (n_wz + b_wz) / (n_z + b_z),      the token itself left out

n_dz follows every draw; the words' counts are those that the sweep before has left. The token's own
topic comes first, then the others in their order, as on the CPU engine: the same random number
draws the same topic but for rounding.
"""

from __future__ import annotations

import torch

from eckart.engines.cuda.kernels.language import jit, power_of_two, tl


@jit
def _swept(
    order,
    begins,
    words,
    topics,
    out,
    table,
    inverse,
    lone,
    alpha,
    draws,
    values,
    k,
    whole_alpha,
    WIDTH: tl.constexpr,
):
    d = tl.load(order + tl.program_id(0))
    begin, end = tl.load(begins + d), tl.load(begins + d + 1)
    columns = tl.arange(0, WIDTH)
    inside = columns < k
    here = tl.load(alpha + columns, mask=inside, other=0.0)
    each, alone = (
        tl.load(inverse + columns, mask=inside, other=0.0),
        tl.load(lone + columns, mask=inside, other=0.0),
    )
    for t in range(begin, end):
        here += tl.where(columns == tl.load(topics + t), 1.0, 0.0)
    length = (end - begin).to(tl.float64)
    value = -length * tl.log(tl.maximum(length - 1 + whole_alpha, 1e-30))
    for t in range(begin, end):
        old = tl.load(topics + t)
        row = tl.load(table + tl.load(words + t).to(tl.int64) * k + columns, mask=inside, other=0.0)
        at = columns == old
        own = tl.sum(tl.where(at, (here - 1.0) * (row - 1.0) * alone, 0.0), 0)
        weight = tl.where(at, 0.0, here * row * each)
        total = tl.sum(weight, 0) + own
        rest = tl.load(draws + t) * total - own
        reached = (tl.cumsum(weight, 0) > rest) & (weight > 0)
        new = tl.min(tl.where(reached, columns, WIDTH), 0)
        last = tl.max(
            tl.where(weight > 0, columns, -1), 0
        )  # where rounding leaves the sum of the weights below the number that was drawn
        new = tl.where(new < WIDTH, new, tl.where(last >= 0, last, old))
        new = tl.where(rest < 0, old, new)
        here += tl.where(columns == new, 1.0, 0.0) - tl.where(at, 1.0, 0.0)
        value += tl.log(tl.maximum(total.to(tl.float64), 1e-300))
        tl.store(out + t, new)
    tl.store(values + d, value)


def gibbs_swept(
    order: torch.Tensor,
    begins: torch.Tensor,
    words: torch.Tensor,
    topics: torch.Tensor,
    table: torch.Tensor,
    numbers: tuple[torch.Tensor, ...],
    draws: torch.Tensor,
    whole_alpha: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Topics after the sweep, and sum log p of the tokens of each document; ``numbers`` are 1 /
    (n_z + b_z), 1 / (n_z + b_z - 1) and a, ``order`` is that in which documents are begun: the
    longest first, so that none is left alone at the end."""
    out, values = (
        torch.empty_like(topics),
        torch.zeros(len(begins) - 1, dtype=torch.float64, device=topics.device),
    )
    k = table.shape[1]
    if len(topics):
        width = power_of_two(k)
        _swept[(len(order),)](
            order,
            begins,
            words,
            topics,
            out,
            table,
            *numbers,
            draws,
            values,
            k,
            whole_alpha,
            WIDTH=width,
            num_warps=1 if width <= 256 else 4,
        )
    return out, values
