"""Topic models never touch shares of documents: they run on an engine that hands out handles for
them."""

from __future__ import annotations

import numpy as np
import pytest

from eckart import LDA, PLSA, document_completion
from eckart.engines import engine_named
from oracle import JUDGE

opaque = pytest.importorskip("opaque")
DOCUMENTS, WORDS = 61, 8

MODELS = {
    "PLSA": (PLSA, {"max_iter": 20}, "topic_sweep"),
    "gibbs": (
        LDA,
        {"learning_method": "gibbs", "max_iter": 16, "burn_in": 8, "n_samples": 2},
        "topic_sweep",
    ),
    "cvb0": (LDA, {"learning_method": "cvb0", "max_iter": 25}, "topic_sweep"),
    "variational": (LDA, {"learning_method": "variational", "max_iter": 16}, "topic_bayes"),
    "online": (LDA, {"learning_method": "online", "batch_size": 30}, "topic_sweep"),
}


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(0)
    phi = rng.dirichlet(np.full(WORDS, 0.2), 2)
    return np.vstack(
        [rng.multinomial(20, t @ phi) for t in rng.dirichlet(np.full(2, 0.3), DOCUMENTS)]
    )


@pytest.mark.parametrize("name", MODELS)
def test_nothing_tall_crosses_in_a_fit(x, name):
    kind, options, primitive = MODELS[name]
    engine = opaque.OpaqueEngine(DOCUMENTS, int((x > 0).sum()))
    model = kind(2, random_state=0, engine=engine, **options).fit(x)
    assert engine.calls("take") == engine.calls("get") == 0
    assert engine.calls(primitive) > 2
    wanted = kind(2, random_state=0, engine=JUDGE, **options).fit(x)
    np.testing.assert_array_equal(model.topic_word_, wanted.topic_word_)
    np.testing.assert_array_equal(model.transform(x), wanted.transform(x))
    assert engine.calls("get") == 1  # the shares, at the end of transform
    assert str(model.certify(x)) == str(wanted.certify(x))
    assert engine.calls("get") == 1


def test_the_judge_asks_an_engine(x):
    engine = opaque.OpaqueEngine(DOCUMENTS, int((x > 0).sum()))
    p = np.random.default_rng(1).dirichlet(np.ones(WORDS), 2)
    first = document_completion(p, x, x, engine=engine)
    assert engine.calls("get") == 0
    assert first == document_completion(p, x, x, engine=JUDGE)
    cpu = document_completion(p, x, x, engine=engine_named("cpu", 2))
    assert cpu.log_likelihood == pytest.approx(first.log_likelihood, rel=1e-9)
