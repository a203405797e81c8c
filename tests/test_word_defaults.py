"""What word models do unless told otherwise: the order of texts, the loss of fixed pairs, held-out
sentences, and lists that are sets."""

from __future__ import annotations

import numpy as np
import pytest

import eckart
from eckart import PMI, GloVe, SkipGram
from eckart.engines.cpu.engine import CpuEngine
from eckart.errors import InputError
from eckart.trace import StopReason

SAME = {"random_state": 0, "deterministic": True}


def chapters(parts=4, sentences=250, seed=0):
    """A text whose chapters have words of their own beside common ones, one chapter after
    another."""
    rng = np.random.default_rng(seed)
    own = [[f"{part}w{j}" for j in range(30)] for part in range(parts)]
    common = [f"c{j}" for j in range(30)]
    return [
        [str(w) for w in rng.choice(own[part] + common, 12)]
        for part in range(parts)
        for _ in range(sentences)
    ]


def shelves(seed=0, n=150):
    """Sets of items of two kinds, in an order of chance."""
    rng = np.random.default_rng(seed)
    return [
        rng.permutation(40)[:24].tolist()
        if i % 9 == 0
        else (2 * rng.permutation(20)[:12] + i % 2).tolist()
        for i in range(n)
    ]


def test_the_loss_of_a_pass_is_that_of_the_same_pairs_and_falls():
    text = chapters()
    model = SkipGram(16, max_iter=12, **SAME).fit(text)
    values = np.array(model.fit_.trace.values)
    assert len(values) == 12
    assert (np.diff(values) < 0.01).all()
    # that of the vectors themselves, up to the pairs that were drawn
    assert values[-1] == pytest.approx(model.certificate_["loss of a pair"], abs=0.1)


def test_texts_in_their_order_and_in_another_have_equally_good_vectors():
    """In their order the last chapter would count most: common words would be taken for its own."""
    text = chapters()
    mixed = [text[i] for i in np.random.default_rng(1).permutation(len(text))]
    one, other = (SkipGram(16, max_iter=5, **SAME).fit(t).certificate_ for t in (text, mixed))
    assert one.holds
    assert one["gradient"] < 1.5 * other["gradient"]
    assert one["loss of a pair"] == pytest.approx(other["loss of a pair"], abs=0.02)


def test_passes_end_where_held_out_sentences_gain_no_more(tmp_path):
    text = chapters(sentences=100)
    model = SkipGram(32, max_iter=200, stop="held_out", **SAME).fit(text)
    held = model.fit_.plan["held_out"]
    assert len(held) == model.n_iter_ < 200
    assert model.fit_.trace.reason is StopReason.CONVERGED
    assert min(held) < held[0]
    long = SkipGram(32, max_iter=200, **SAME).fit(text)
    assert long.n_iter_ == 200
    assert "held_out" not in long.fit_.plan
    again = model.certify(text)
    assert again["loss of a pair"] == pytest.approx(model.certificate_["loss of a pair"])
    # one long text is cut into runs, of which some are left out
    assert (
        SkipGram(4, max_iter=3, stop="held_out", **SAME)
        .fit([[word for line in text for word in line]])
        .fit_.plan["held_out"]
    )
    with pytest.raises(
        InputError,
        match="stop must be None for a text of 4 words, too short to leave a part of it out, got",
    ):
        SkipGram(4, min_count=1, stop="held_out").fit([["a", "b", "a", "b"]])


@pytest.mark.parametrize("make", [PMI, GloVe, SkipGram])
def test_windows_of_sets_are_the_lists_and_order_says_nothing(make):
    rng, few = np.random.default_rng(2), {"max_iter": 3} if make is GloVe else {}
    sets = shelves()
    turned = [[int(item) for item in rng.permutation(row)] for row in sets]
    model = make(4, random_state=0, **few).fit(sets)
    plan = model.fit_.plan
    assert plan["window"] == 24
    assert "sets" in plan["window_reason"]
    if make is not SkipGram:
        other = make(4, random_state=0, **few).fit(turned)
        np.testing.assert_allclose(
            np.abs(other.vectors_.similarity(2, 4)),
            np.abs(model.vectors_.similarity(2, 4)),
            atol=1e-3,
        )
    near = [
        n
        for item in range(4, 30)
        for n, _ in model.vectors_.neighbours(item, 5)
        if item % 2 == n % 2
    ]
    assert len(near) > 0.7 * 26 * 5  # by chance a half
    assert make(4, random_state=0, window=3, **few).fit(sets).fit_.plan["window"] == 3


def test_sentences_keep_the_usual_window():
    text = chapters(sentences=60)
    for make, window in ((PMI, 10), (GloVe, 10), (SkipGram, 5)):
        plan = (
            make(4, random_state=0, max_iter=2).fit(text).fit_.plan
            if make is not PMI
            else PMI(4).fit(text).fit_.plan
        )
        assert plan["window"] == window
        assert "sentences" in plan["window_reason"]
    usual = eckart.cooccurrence(text).to_scipy()
    asked = PMI(4, random_state=0).fit(eckart.cooccurrence(text))
    assert usual.shape == (len(asked.vectors_),) * 2
    np.testing.assert_allclose(
        asked.singular_values_, PMI(4, random_state=0).fit(text).singular_values_
    )


@pytest.mark.parametrize("after", [1, 4, 6])
def test_a_killed_fit_with_held_out_sentences_goes_on_with_the_same_bits(
    after, tmp_path, monkeypatch
):
    text, steps, step = chapters(sentences=30), [], CpuEngine.pair_step
    options = SAME | {"max_iter": 40, "learning_rate": 0.2, "stop": "held_out"}
    whole = SkipGram(16, **options).fit(text)
    assert whole.n_iter_ == 8  # of which the last three are the tail

    def pair_step(*args, **more):
        steps.append(1)
        if len(steps) == after + 1:
            raise SystemError("killed")
        return step(*args, **more)

    monkeypatch.setattr("eckart.io.models.checkpoint.SECONDS", 0.0)
    monkeypatch.setattr(CpuEngine, "pair_step", pair_step)
    model = SkipGram(16, checkpoint=tmp_path / "state", **options)
    with pytest.raises(SystemError, match="killed"):
        model.fit(text)
    model.fit(text)
    assert len(steps) == whole.n_iter_ + 1  # the killed one came twice
    assert model.fit_.plan["held_out"] == whole.fit_.plan["held_out"]
    np.testing.assert_array_equal(model.components_, whole.components_)
