"""u_i.v_j at the stored entries of sparse rows."""

from __future__ import annotations

import torch

from eckart.engines.cuda.kernels import usable
from eckart.engines.cuda.kernels.products import entry_dots
from eckart.engines.cuda.stored import EntryArrays


def at_entries(entries: EntryArrays, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """u_i.v_j at every stored entry, in row order."""
    if usable(v):
        return entry_dots(entries.pieces, entries.indices, u.to(v.dtype), v)
    return at_pairs(entries.row_of, entries.indices, u, v)


def at_pairs(
    rows: torch.Tensor, columns: torch.Tensor, u: torch.Tensor, v: torch.Tensor
) -> torch.Tensor:
    """u_i.v_j of pairs of rows, some at a time."""
    out = torch.empty(len(rows), dtype=u.dtype, device=u.device)
    step = max(1, (2**26 if u.is_cuda else 2**20) // max(1, u.shape[1]))
    for a in range(0, len(out), step):
        at = slice(a, a + step)
        out[at] = (u[rows[at]] * v[columns[at]]).sum(1)
    return out
