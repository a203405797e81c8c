"""Skip-gram with negative sampling over pieces of a corpus, two words of a window at a time as two
small matrix products.

For each word v that is kept, the words inside its (randomly shortened) window are taken in order,
two at a time: w_1, w_2, and r noise words u_1..u_r drawn for them both:

    s_ij = <zeta_{w_i}, z_j>     j over v and the noise
    g_ij = eta (label_j - times_j sigma(s_ij))     label is 1 for v, 0 for noise; times_j is how
    often j was drawn (plus 1 for v)
    zeta_{w_i} += sum_j g_ij z_j,    z_j += sum_i g_ij zeta_{w_i}     for SIX outputs after another

Inputs x and outputs y are (n + 1) x padded columns; row n is a dummy that stays zero. Where there
is a bias, its column holds 1 in x and b_v in y. Repeatable steps on threads (``draw_samples``,
``step_block``) take the same pairs and noise one by one, by blocks that share no word. Random
numbers: one splitmix stream for each piece, so they do not depend on threads.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.compiling import INSIDE, OUTSIDE
from eckart.engines.cpu.native.pool import call_for_number
from eckart.engines.cpu.registers.windows import (
    SIX,
    prefetch_to_write,
    sample_scores,
    sample_update,
    window_scores,
    window_update,
)
from eckart.engines.protocol.words import LISTEN

GOLDEN, MIX_1, MIX_2 = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)
S30, S27, S31, S32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)
TOGETHER = 2
"""Words of a window that share their noise."""
FOUR = 4
"""Samples whose scores are taken together."""
AHEAD = 8
"""Samples between the one whose rows are asked for and the one in work: memory answers in the time
of about so many steps."""


@njit(inline="always")
def mixed(state):
    """The random number of a splitmix state."""
    z = (state ^ (state >> S30)) * MIX_1
    z = (z ^ (z >> S27)) * MIX_2
    return z ^ (z >> S31)


@njit(inline="always")
def stream(seed, piece):
    """The state at which the random numbers of a piece begin."""
    return mixed(mixed(seed) + np.uint64(piece) * GOLDEN)


@njit(**INSIDE)
def kept_words(ids, first, last, keep, state, out):
    """Positions' words that survive subsampling (keep is the chance times 2^32), one after another
    in ``out``; how many, and the state of the stream."""
    n = 0
    for p in range(first, last):
        w = ids[p]
        state += GOLDEN
        if (mixed(state) & LOW) < keep[w]:
            out[n] = w
            n += 1
    return n, state


@njit(inline="always")
def neighbours(kept, n, p, far, dummy, rows):
    """The words up to ``far`` places away from place p, and a dummy behind them; how many."""
    b = 0
    for q in range(max(0, p - far), min(n, p + far + 1)):
        if q != p:
            rows[b] = kept[q]
            b += 1
    rows[b] = dummy
    return b


@njit(**INSIDE)
def draw_targets(word, chance, alias, negatives, weight, dummy, state, targets, times):
    """v and its noise, each once, with how often it came; the rest of ``targets`` is the dummy.
    Noise by the alias method."""
    n = np.uint64(len(chance))
    targets[0], times[0] = word, 1.0
    count = 1
    for _ in range(negatives):
        state += GOLDEN
        z = mixed(state)
        u = np.int64(((z >> S32) * n) >> S32)
        if (z & LOW) >= chance[u]:
            u = alias[u]
        for j in range(count):
            if targets[j] == u:
                times[j] += weight
                break
        else:
            targets[count], times[count] = u, weight
            count += 1
    for j in range(count, len(targets)):
        targets[j], times[j] = dummy, 0.0
    return state


@njit(inline="always")
def sigmoid(s):
    """1 / (1 + exp(-s)) to single precision, as half of 1 + tanh(s / 2) by a ratio of polynomials:
    no branch, so loops over it vectorise."""
    h = min(np.float32(9.0), max(np.float32(-9.0), np.float32(0.5) * s))
    q = h * h
    p = np.float32(-2.76076847742355e-16)
    p = p * q + np.float32(2.00018790482477e-13)
    p = p * q + np.float32(-8.60467152213735e-11)
    p = p * q + np.float32(5.12229709037114e-08)
    p = p * q + np.float32(1.48572235717979e-05)
    p = p * q + np.float32(6.37261928875436e-04)
    p = p * q + np.float32(4.89352455891786e-03)
    d = np.float32(1.19825839466702e-06)
    d = d * q + np.float32(1.18534705686654e-04)
    d = d * q + np.float32(2.26843463243900e-03)
    d = d * q + np.float32(4.89352518554385e-03)
    return np.float32(0.5) + np.float32(0.5) * (h * p / d)


@njit(**INSIDE, fastmath=True)
def steps_of(s, rows, times, begin, positive, rate, g):
    """g from the scores of one group of SIX targets; ``positive`` is 1 where the group begins with
    v. Columns beyond SIX stay zero."""
    for i in range(rows):
        for j in range(SIX):
            g[i, j] = -rate * times[begin + j] * sigmoid(s[i, j])
        if positive:
            g[i, 0] += rate


@njit(**INSIDE)
def window_loss(s, rows, times, begin, positive):
    """sum_ij of -log sigma(s) for v and -times log sigma(-s) for noise, in float64."""
    total = 0.0
    for i in range(rows):
        for j in range(SIX):
            v = np.float64(s[i, j])
            soft = max(v, 0.0) + np.log1p(np.exp(-abs(v)))
            total += times[begin + j] * soft
            if positive and j == 0:
                total -= v  # one of its times is the word itself: softplus(s) - s = softplus(-s)
    return total


@njit(**OUTSIDE)
def train_pieces(corpus, first, last, x, y, rule, rates, seed, scratch):
    """Pieces first..last of the corpus (piece p is ids[bounds[p]:bounds[p + 1]]), the rate falling
    from rates[0] to rates[1]; x and y are changed.

    Returns the loss of the windows that were listened to, their pairs, and all pairs.
    """
    ids, bounds, keep, chance, alias = corpus
    window, negatives, weight, bias, columns = rule
    kept, s, g = scratch
    dummy = len(x) - 1
    groups = (negatives + SIX) // SIX
    targets = np.empty((2, window, groups * SIX), np.int32)
    times = np.empty((2, window, groups * SIX), np.float32)
    rows, reach = np.empty((2, 2 * window + 2), np.int32), np.empty(2, np.int64)
    whole = max(bounds[last] - bounds[first], 1)
    loss, listened, pairs = 0.0, 0, 0
    for piece in range(first, last):
        part = (bounds[piece] - bounds[first]) / whole
        rate = np.float32(rates[0] + (rates[1] - rates[0]) * part)
        n, state = kept_words(
            ids, bounds[piece], bounds[piece + 1], keep, stream(seed, piece), kept
        )
        if n < 2:
            continue
        for p in range(-1, n):
            now, then = p & 1, (p + 1) & 1
            if p + 1 < n:
                state += GOLDEN
                far = 1 + np.int64(((mixed(state) >> S32) * np.uint64(window)) >> S32)
                reach[then] = neighbours(kept, n, p + 1, far, dummy, rows[then])
                for pair in range((reach[then] + 1) // TOGETHER):
                    state = draw_targets(
                        kept[p + 1],
                        chance,
                        alias,
                        negatives,
                        weight,
                        dummy,
                        state,
                        targets[then, pair],
                        times[then, pair],
                    )
                    for j in range(negatives + 1):
                        for c in range(0, columns, 16):
                            prefetch_to_write(y, targets[then, pair, j], c)
                if p + window + 1 < n:
                    for c in range(0, columns, 16):
                        prefetch_to_write(x, kept[p + window + 1], c)
            if p < 0:
                continue
            listen = (piece + p) % LISTEN == 0
            for begin in range(0, reach[now], TOGETHER):
                partner, both = targets[now, begin // TOGETHER], times[now, begin // TOGETHER]
                two = rows[now, begin : begin + TOGETHER]
                b = min(TOGETHER, reach[now] - begin)
                for group in range(groups):
                    window_scores(x, two, 0, y, partner, group * SIX, s[group], columns)
                    steps_of(s[group], b, both, group * SIX, group == 0, rate, g[group])
                    if listen:
                        loss += window_loss(s[group], b, both, group * SIX, group == 0)
                for group in range(groups):
                    window_update(x, two, b, y, partner, group * SIX, g[group], columns)
                    if bias >= 0:
                        for i in range(b):
                            x[two[i], bias] = 1.0
            pairs += reach[now]
            if listen:
                listened += reach[now]
    return loss, listened, pairs


@njit(**OUTSIDE)
def draw_samples(corpus, first, last, rule, seed, scratch, strata, place):
    """Pairs and noise of pieces first..last as samples (w, v) by blocks; v is the word itself where
    it is noise, ~v where it stood beside w.

    Block a strata + b holds inputs that are a and outputs that are b modulo ``strata`` (a power of
    two), in the order of the text, in out[ends[block]:ends[block + 1]]; ``begin`` is where the
    first of them goes. ``raw`` takes the samples before they are dealt. Returns the pairs.
    """
    (kept, raw), (out, begin, ends) = scratch, place
    ids, bounds, keep, chance, alias = corpus
    window, negatives, n = rule[0], rule[1], np.uint64(len(chance))
    mask = np.int64(strata - 1)
    count, pairs = 0, 0
    ends[:] = 0
    for piece in range(first, last):
        size, state = kept_words(
            ids, bounds[piece], bounds[piece + 1], keep, stream(seed, piece), kept
        )
        for p in range(size if size > 1 else 0):
            state += GOLDEN
            far = 1 + np.int64(((mixed(state) >> S32) * np.uint64(window)) >> S32)
            v = np.int64(kept[p])
            for q in range(max(0, p - far), min(size, p + far + 1)):
                if q == p:
                    continue
                w = np.int64(kept[q])
                row = (w & mask) * strata + 1
                raw[count, 0], raw[count, 1] = w, ~v
                ends[row + (v & mask)] += 1
                for j in range(1, negatives + 1):
                    state += GOLDEN
                    z = mixed(state)
                    u = np.int64(((z >> S32) * n) >> S32)
                    other = np.int64(alias[u])
                    u = other if (z & LOW) >= chance[u] else u
                    raw[count + j, 0], raw[count + j, 1] = w, u
                    ends[row + (u & mask)] += 1
                count += 1 + negatives
                pairs += 1
    ends[0] = begin
    for b in range(strata * strata):
        ends[b + 1] += ends[b]
    for t in range(
        count - 1, -1, -1
    ):  # from the last to the first: what marked the end of a block then marks its beginning
        w, v = np.int64(raw[t, 0]), np.int64(raw[t, 1])
        b = (w & mask) * strata + ((v ^ (v >> 63)) & mask) + 1
        at = ends[b] - 1
        out[at, 0], out[at, 1] = w, v
        ends[b] = at
    for b in range(strata * strata):
        ends[b] = ends[b + 1]
    ends[strata * strata] = begin + count
    return pairs


@njit(**OUTSIDE, fastmath={"contract", "reassoc", "nsz"})
def step_block(samples, ends, block, x, y, rule, rates):
    """A step for each sample of a block, run after run: s = <x_w, y_v>, g = rate (label - weight
    sigma(s)), x_w += g y_v, y_v += g x_w.

    The scores of FOUR samples are taken before their steps. ``ends[r]`` are those of run r,
    ``rates[r]`` its rate. Returns the loss of the runs that are listened to.
    """
    weight, bias, columns = rule[2], rule[3], rule[4]
    s, g, four = (
        np.zeros(FOUR, np.float32),
        np.zeros(FOUR, np.float32),
        np.zeros((FOUR, 2), np.int32),
    )
    loss = 0.0
    for r in range(len(ends)):
        first, last = ends[r, block], ends[r, block + 1]
        rate = rates[r]
        for t in range(first, last, FOUR):
            count = min(FOUR, last - t)
            for i in range(FOUR):
                four[i, 0], four[i, 1] = (
                    samples[min(t + i, last - 1), 0],
                    samples[min(t + i, last - 1), 1],
                )
                at = min(t + i + AHEAD, last - 1)
                soon = np.int64(samples[at, 1])
                for c in range(0, columns, 16):
                    prefetch_to_write(x, np.int64(samples[at, 0]), c)
                    prefetch_to_write(y, soon ^ (soon >> 63), c)
            sample_scores(x, y, four, 0, s, columns)
            for i in range(FOUR):
                g[i] = sigmoid(s[i])
            for i in range(count):
                w, v = np.int64(four[i, 0]), np.int64(four[i, 1])
                step = rate * (np.float32(1.0) - g[i]) if v < 0 else -rate * weight * g[i]
                sample_update(x, w, y, v ^ (v >> 63), step, columns)
                if bias >= 0:
                    x[w, bias] = 1.0
                if r % LISTEN == 0:
                    e = np.float64(-s[i] if v < 0 else s[i])
                    loss += (1.0 if v < 0 else np.float64(weight)) * (
                        max(e, 0.0) + np.log1p(np.exp(-abs(e)))
                    )
    return loss


@njit(**OUTSIDE)
def block_part(part, who, blocks, code, samples, ends, x, y, rule, rates, losses):
    """``step_block``, whose address is ``code``, of one of the blocks."""
    losses[blocks[part]] = call_for_number(code, (samples, ends, blocks[part], x, y, rule, rates))
