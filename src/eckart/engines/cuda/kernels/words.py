"""Skip-gram over pieces of a corpus (see ``cpu.words`` for the formulas and the order of draws).

    keep_words    the words of a piece that survive subsampling, one after another
    walk          a program takes piece after piece, window after window, two words of it and their
    noise at a time

Programs of ``walk`` share the tables: what they add is added atomically, so that nothing is lost,
but in no fixed order.
"""

from __future__ import annotations

from typing import Any

import torch

from eckart.engines.cuda.kernels.language import jit, power_of_two, tl


@jit
def _mixed(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)


@jit
def _keep_words(
    ids, bounds, keep, kept, counts, states, seed, first, GOLDEN: tl.constexpr, LENGTH: tl.constexpr
):
    piece = tl.program_id(0).to(tl.int64) + first
    begin, end = tl.load(bounds + piece), tl.load(bounds + piece + 1)
    step = tl.full([], GOLDEN, tl.uint64)
    state = _mixed(_mixed(tl.load(seed)) + piece.to(tl.uint64) * step)
    lanes = tl.arange(0, LENGTH)
    at = begin + lanes
    inside = at < end
    word = tl.load(ids + at, mask=inside, other=0)
    drawn = _mixed(state + (lanes + 1).to(tl.uint64) * step) & 0xFFFFFFFF
    stays = inside & (drawn < tl.load(keep + word, mask=inside, other=0).to(tl.uint64))
    place = tl.cumsum(stays.to(tl.int32), 0) - 1
    tl.store(kept + begin + place, word, mask=stays)
    tl.store(counts + piece - first, tl.sum(stays.to(tl.int32), 0))
    tl.store(
        states + piece - first,
        (state + (end - begin).to(tl.uint64) * step).to(tl.int64, bitcast=True),
    )


@jit
def _walk(
    kept,
    bounds,
    counts,
    states,
    chance,
    alias,
    x,
    y,
    losses,
    first,
    pieces,
    rate,
    fall,
    whole,
    words,
    window,
    drawn,
    weight,
    bias,
    columns,
    stride,
    GOLDEN: tl.constexpr,
    LISTEN: tl.constexpr,
    NOISE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    step = tl.full([], GOLDEN, tl.uint64)
    lanes, width = tl.arange(0, NOISE), tl.arange(0, WIDTH)
    inside = width < columns
    moves = inside & (width != bias)
    two = tl.arange(0, 2)
    origin = tl.load(bounds + first)
    for own in range(tl.program_id(0), pieces, tl.num_programs(0)):
        begin, n = tl.load(bounds + first + own), tl.load(counts + own)
        state = tl.load(states + own).to(tl.uint64, bitcast=True)
        now = rate + fall * ((begin - origin).to(tl.float32) / whole)
        loss = tl.zeros([2], dtype=tl.float64)
        listened, pairs = tl.zeros([1], dtype=tl.int64), tl.zeros([1], dtype=tl.int64)
        for p in range(0, tl.where(n > 1, n, 0)):
            word = tl.load(kept + begin + p).to(tl.int64)
            state += step
            far = 1 + (((_mixed(state) >> 32) * window) >> 32).to(tl.int32)
            low, high = tl.maximum(p - far, 0), tl.minimum(p + far + 1, n)
            b = high - low - 1
            listen = ((first + own + p) % LISTEN) == 0
            pairs += b
            listened += tl.where(listen, b, 0)
            for q in range(0, b, 2):
                place = low + q + two
                place += (place >= p).to(tl.int32)
                there = (q + two) < b
                row = tl.load(kept + begin + place, mask=there, other=0).to(tl.int64)
                z = _mixed(state + lanes.to(tl.uint64) * step)
                state += drawn * step
                u = (((z >> 32) * words) >> 32).to(tl.int64)
                noise = (lanes > 0) & (lanes <= drawn)
                stays = (z & 0xFFFFFFFF) < tl.load(chance + u, mask=noise, other=0).to(tl.uint64)
                u = tl.where(stays, u, tl.load(alias + u, mask=noise, other=0).to(tl.int64))
                u = tl.where(lanes == 0, word, u)
                real = lanes <= drawn
                times = tl.where(lanes == 0, 1.0, tl.where(real, weight, 0.0))
                ax = x + row[:, None] * stride + width[None, :]
                ay = y + u[:, None] * stride + width[None, :]
                vx = tl.load(
                    ax, mask=there[:, None] & inside[None, :], other=0.0, cache_modifier=".cg"
                )
                vy = tl.load(
                    ay, mask=real[:, None] & inside[None, :], other=0.0, cache_modifier=".cg"
                )
                s = tl.sum(vx[:, None, :] * vy[None, :, :], 2)
                g = tl.where(lanes == 0, 1.0, 0.0)[None, :] - times[None, :] / (1.0 + tl.exp(-s))
                g = tl.where(there[:, None] & real[None, :], now * g, 0.0)
                tl.atomic_add(
                    ax,
                    tl.sum(g[:, :, None] * vy[None, :, :], 1),
                    mask=there[:, None] & moves[None, :],
                    sem="relaxed",
                )
                tl.atomic_add(
                    ay,
                    tl.sum(g[:, :, None] * vx[:, None, :], 0),
                    mask=real[:, None] & inside[None, :],
                    sem="relaxed",
                )
                if listen:
                    soft = tl.maximum(s, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(s)))
                    part = times[None, :] * soft - tl.where(lanes == 0, s, 0.0)
                    part = tl.where(there[:, None] & real[None, :], part, 0.0)
                    loss += tl.sum(part.to(tl.float64), 1)
        tl.store(losses + own * 3, tl.sum(loss, 0))
        tl.store(losses + own * 3 + 1, tl.sum(listened, 0).to(tl.float64))
        tl.store(losses + own * 3 + 2, tl.sum(pairs, 0).to(tl.float64))


GOLDEN = 0x9E3779B97F4A7C15


def keep_words(
    corpus: Any, part: tuple[int, int], longest: int, seed: int
) -> tuple[torch.Tensor, ...]:
    """Words that were kept where their pieces begin, how many of each piece, and the states of its
    stream."""
    pieces, device = part[1] - part[0], corpus.ids.device
    kept, counts = (
        torch.empty_like(corpus.ids),
        torch.empty(pieces, dtype=torch.int32, device=device),
    )
    states = torch.empty(pieces, dtype=torch.int64, device=device)
    start = torch.tensor([seed], dtype=torch.int64, device=device).view(torch.uint64)
    _keep_words[(pieces,)](
        corpus.ids,
        corpus.bounds,
        corpus.keep,
        kept,
        counts,
        states,
        start,
        part[0],
        GOLDEN=GOLDEN,
        LENGTH=power_of_two(longest),
        num_warps=4,
    )
    return kept, counts, states


def walk(
    corpus: Any,
    drawn: tuple[torch.Tensor, ...],
    part: tuple[int, int],
    x: torch.Tensor,
    y: torch.Tensor,
    rule: Any,
    rates: tuple[float, float],
    words: int,
    listen: int,
    programs: int,
) -> torch.Tensor:
    """The steps of all pieces of a part: loss, listened and all pairs."""
    (kept, counts, states), pieces = drawn, part[1] - part[0]
    losses = torch.zeros((pieces, 3), dtype=torch.float64, device=x.device)
    noise, width = power_of_two(rule.drawn + 1, 2), power_of_two(rule.columns)
    _walk[(min(pieces, programs),)](
        kept,
        corpus.bounds,
        counts,
        states,
        corpus.chance,
        corpus.alias,
        x,
        y,
        losses,
        part[0],
        pieces,
        float(rates[0]),
        float(rates[1] - rates[0]),
        float(max(words, 1)),
        len(x) - 1,
        rule.window,
        rule.drawn,
        float(rule.weight),
        rule.bias,
        rule.columns,
        x.stride(0),
        GOLDEN=GOLDEN,
        LISTEN=listen,
        NOISE=noise,
        WIDTH=width,
        num_warps=min(8, max(1, noise * width // 1024)),
    )
    return losses.sum(0)
