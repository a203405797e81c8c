"""Co-occurrence counts: exact, symmetric, those of GloVe's tool, the same in little memory."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eckart
from eckart import InputError, cooccurrence, sequences
from eckart.embed import cooccurrence as module
from eckart.embed.sequences import Sequences
from eckart.engines import engine_named
from eckart.engines.protocol import CountRows

texts = st.lists(st.lists(st.sampled_from("abcdefg"), max_size=15), min_size=1, max_size=8).filter(
    any
)
WEIGHTS = {
    "harmonic": lambda d, window: Fraction(1, d),
    "flat": lambda d, window: Fraction(1),
    "linear": lambda d, window: Fraction(window - d + 1, window),
}


def brute(sentences, words, window, weighting, sides="both"):
    """Every pair of positions, in exact arithmetic, rounded once."""
    total = defaultdict(Fraction)
    for s in sentences:
        for p, w in enumerate(s):
            for q, v in enumerate(s):
                d = abs(p - q)
                if 0 < d <= window and sides in ("both", "left" if q < p else "right"):
                    total[w, v] += WEIGHTS[weighting](d, window)
    return np.array([[float(total[w, v]) for v in words] for w in words])


@settings(max_examples=60, deadline=None)
@given(
    texts,
    st.integers(1, 22),
    st.sampled_from(sorted(WEIGHTS)),
    st.sampled_from(["both", "left", "right"]),
)
def test_agrees_with_a_brute_force_count(sentences, window, weighting, sides):
    counts = cooccurrence(
        sentences, min_count=1, window=window, weighting=weighting, sides=sides, n_threads=1
    )
    want = brute(sentences, counts.columns, window, weighting, sides)
    got = counts.to_scipy().toarray()
    if weighting == "harmonic" and window > 20:
        np.testing.assert_allclose(got, want, rtol=1e-13)
    else:
        np.testing.assert_array_equal(got, want)  # to the last bit: sums are exact
    assert counts.rows.tolist() == counts.columns.tolist()


def glove_tool(lines, vocabulary, window):
    """The loop of GloVe's cooccur.c with its usual options (symmetric, distance weighting): words
    in a ring, only those to the left are looked at."""
    number = {w: i for i, w in enumerate(vocabulary)}
    table = np.zeros((len(vocabulary), len(vocabulary)))
    for line in lines:
        history = [0] * window
        j = 0
        for word in line.split():
            if word not in number:
                continue  # skip out-of-vocabulary words: j does not move
            w2 = number[word]
            for k in range(j - 1, max(j - window, 0) - 1, -1):
                w1 = history[k % window]
                table[w1, w2] += 1.0 / (j - k)
                table[w2, w1] += 1.0 / (j - k)
            history[j % window] = w2
            j += 1
    return table


def test_gives_the_counts_of_the_glove_tool(rng):
    words = [f"w{i}" for i in range(30)]
    lines = [" ".join(rng.choice(words, size=size, p=zipf(30))) for size in rng.integers(0, 60, 40)]
    counts = cooccurrence(lines, window=15, min_count=12)
    assert 3 < len(counts.columns) < 30
    np.testing.assert_allclose(
        counts.to_scipy().toarray(), glove_tool(lines, counts.columns, 15), rtol=1e-12
    )


def zipf(n):
    p = 1 / np.arange(1, n + 1)
    return p / p.sum()


@pytest.fixture(scope="module")
def large():
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 40, 3000)
    lengths[100] = 60_000  # one line longer than a chunk
    pointers = np.concatenate([[0], np.cumsum(lengths)])
    ids = rng.choice(2000, size=pointers[-1], p=zipf(2000)).astype(np.int32)
    words = np.array([f"w{i}" for i in range(2000)], object)
    return Sequences(ids, pointers, words, np.bincount(ids, minlength=2000))


def test_out_of_core_is_the_same_to_the_last_bit(large, monkeypatch):
    whole = cooccurrence(large)
    made = []
    monkeypatch.setattr(module.tempfile, "TemporaryFile", spy(module.tempfile.TemporaryFile, made))
    small = cooccurrence(large, max_memory=2**20)
    assert len(module.chunks(large.n_tokens, 2**20)) >= 2
    assert len(made) >= 4  # both chunks went to disk
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(small, name))
    monkeypatch.setattr(module, "PIECE", 500)
    again = cooccurrence(large, max_memory=2**20, n_threads=3)
    np.testing.assert_array_equal(whole.data, again.data)


def spy(make, made):
    def call(*args, **how):
        made.append(make(*args, **how))
        return made[-1]

    return call


def test_memory_is_bounded(large):
    import tracemalloc

    cooccurrence(large, max_memory=2**20)  # compiled
    peaks = []
    for most in (2**20, 2**30):
        tracemalloc.start()
        kept = cooccurrence(large, max_memory=most, n_threads=1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert kept.nnz * 12 > 5 * 2**20
    assert peaks[0] < 3 * 2**20 < 10 * 2**20 < peaks[1]


def test_two_sides_are_symmetric_and_one_side_is_half(large):
    both, left, right = (
        cooccurrence(large, sides=side).to_scipy() for side in ("both", "left", "right")
    )
    assert abs(both - both.T).max() == 0
    assert abs(left - right.T).max() == 0
    assert abs(both - (left + right)).max() < 1e-9
    assert both.sum() == pytest.approx(2 * left.sum())


def test_threads_change_nothing(large):
    one, three = (cooccurrence(large, n_threads=n) for n in (1, 3))
    assert one.data.tobytes() == three.data.tobytes()


def test_windows_close_over_dropped_words_and_stop_at_the_end_of_a_line():
    counts = cooccurrence(["a rare b", "b a"], window=1, min_count=2)
    assert counts.columns.tolist() == ["a", "b"]
    assert counts.to_scipy().toarray().tolist() == [[0, 2], [2, 0]]


def test_one_word_and_nothing():
    assert cooccurrence(["a"], min_count=1).to_scipy().toarray().tolist() == [[0.0]]
    # 4 at distance 1, 2 halves
    assert cooccurrence(["a a a"], min_count=1).to_scipy().toarray().tolist() == [[5.0]]


def test_wrong_arguments_are_named():
    for how, words in (
        ({"window": 0}, "window must be an int from 1 to 10000, got 0"),
        ({"weighting": "cubic"}, "weighting must be 'harmonic' or 'flat' or 'linear', got 'cubic'"),
        ({"sides": "up"}, "sides must be 'both' or 'left' or 'right', got 'up'"),
        ({"max_memory": 10}, r"max_memory must be a number of bytes, at least 2\*\*20, got 10"),
    ):
        with pytest.raises(InputError, match=words):
            cooccurrence(["a b"], min_count=1, **how)
    bad = Sequences(
        np.array([0, 5], np.int32), np.array([0, 2]), np.array(["a"], object), np.array([2])
    )
    with pytest.raises(InputError, match="ids must be positions in 1 words, got 0 to 5"):
        cooccurrence(bad)
    with pytest.raises(InputError, match="pointers do not cut"):
        cooccurrence(
            Sequences(
                np.array([0], np.int32), np.array([0, 2]), np.array(["a"], object), np.array([2])
            )
        )


def test_the_result_is_counts_for_every_model(large):
    counts = cooccurrence(large, window=2, sides="right")
    assert isinstance(counts, eckart.Counts)
    assert eckart.PCA(2, random_state=0).fit(counts).n_components_ == 2
    assert sequences(["x y"], min_count=1).n_tokens == 2


def test_rows_that_were_looked_at_stay():
    """A checkpoint takes the rows of a run before they are taken for good."""
    engine, run = engine_named("cpu", 1), module.Run(2**20)
    run.put(CountRows(0, np.array([1]), np.array([1], np.int32), np.array([2.0])))
    run.put(CountRows(1, np.array([1]), np.array([0], np.int32), np.array([3.0])))
    for take in (run.held, run.held, run.arrays):
        assert [a.tolist() for a in take(engine)] == [[0, 1, 2], [1, 0], [2.0, 3.0]]
