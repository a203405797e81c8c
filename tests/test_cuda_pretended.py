"""The engine in PyTorch, and networks, on a card that is not there: what CUDA refuses, what crosses
between sweeps, what a fit waits for. All models and all contract tests on it: ``python tests/gpu.py
pretended``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

torch = pytest.importorskip("torch", reason="the engine needs PyTorch")

sys.path.insert(0, str(Path(__file__).parent / "engines"))
import pretended  # noqa: E402
from exchange import CASES, data  # noqa: E402
from pretended import CardTensor, PretendedCard  # noqa: E402

import eckart  # noqa: E402
from eckart.engines import engine_named  # noqa: E402
from eckart.engines.cuda import made  # noqa: E402
from eckart.engines.cuda.arrays import fetched  # noqa: E402
from eckart.engines.protocol import RidgeRule  # noqa: E402
from eckart.io.models import checkpoint  # noqa: E402
from eckart.matrix import Dense, Observed  # noqa: E402

ROWS, COLUMNS = 61, 37


def ratings(dtype=np.float64):
    rng = np.random.default_rng(0)
    x = (
        3
        + rng.standard_normal((ROWS, 2)) @ rng.standard_normal((2, COLUMNS))
        + 0.1 * rng.standard_normal((ROWS, COLUMNS))
    )
    x[rng.random(x.shape) < 0.4] = np.nan
    return np.abs(x).astype(dtype)


def counts():
    rng = np.random.default_rng(1)
    return sparse.csr_array(
        rng.poisson(
            rng.gamma(0.5, 1.0, (ROWS, 3)) @ rng.gamma(0.5, 1.0, (3, COLUMNS)) + 0.05
        ).astype(float)
    )


def dense():
    rng = np.random.default_rng(2)
    return rng.gamma(0.5, 1.0, (ROWS, 3)) @ rng.gamma(0.5, 1.0, (3, COLUMNS)) + 0.1 * rng.random(
        (ROWS, COLUMNS)
    )


def test_the_card_refuses_what_cuda_refuses():
    with PretendedCard() as card:
        here, there = torch.ones(3, 3), torch.ones(3, 3, device="cuda")
        assert there.is_cuda
        assert there.device == torch.device("cuda:0")
        for do in (
            lambda: there + here,
            lambda: here @ there,
            lambda: torch.cat([here, there]),
            lambda: torch.where(there > 0, here, there),
        ):
            with pytest.raises(RuntimeError, match="at least two devices"):
                do()
        with pytest.raises(RuntimeError, match="not implemented"):
            there.long() @ there.long()
        for do in (there.numpy, lambda: np.asarray(there)):
            with pytest.raises(TypeError, match="can't convert"):
                do()
        with pytest.raises(AssertionError, match="any order"):
            there.index_add_(0, torch.zeros(3, dtype=torch.int64, device="cuda"), there)
        with pytest.raises(AssertionError, match="nobody waits"):
            there.to("cpu", non_blocking=True)
        assert not card.moves
        # a single number of the host is taken
        assert isinstance(there * torch.tensor(2.0), CardTensor)
        assert float((there[:, 0] + 1).sum()) == 6.0
        assert card.waits.total() == 1
        there[1:] = here[1:]
        assert there[torch.tensor([True, False, True], device="cuda")].shape == (2, 3)
        np.testing.assert_array_equal(there.cpu().numpy(), np.ones((3, 3)))
    # rows, the yes and no for each, all of it
    assert [move.way for move in card.moves] == ["up", "up", "down"]
    assert card.waits.total() == 3


def test_a_promised_copy_that_is_overwritten_too_soon_shows():
    with PretendedCard() as card:
        buffer = torch.empty(4, pin_memory=True).fill_(1.0)
        with torch.cuda.stream(torch.cuda.Stream()):
            there = buffer.to("cuda", non_blocking=True)
        assert there.isnan().all()  # nobody has waited for it
        torch.cuda.current_stream().wait_event(None)
        assert there.tolist() == [1.0] * 4
        with pytest.raises(AssertionError, match="may not have read"):
            buffer.fill_(2.0)  # the card waits for the copy, the host has not
        torch.cuda.synchronize()
        buffer.fill_(2.0)
        assert there.tolist() == [1.0] * 4
    assert card.waits["synchronize", "a test"] == 1


@pytest.mark.parametrize("memory", [2**36, 2**14])
def test_rows_stream_through_locked_memory(monkeypatch, memory):
    """What has no room on the card is copied block by block, and is there when it is worked on."""
    x = np.random.default_rng(0).standard_normal((5000, 23))
    want = engine_named("cpu").moments(engine_named("cpu").put(Dense(x)), np.ones(23))
    with PretendedCard(memory) as card:
        engine = made(1, "cuda")
        engine.room.block = 2**15
        placed = engine.put(Dense(x))
        got = engine.moments(placed, np.ones(23))
        assert (placed.resident is None) == (memory < x.nbytes)
    np.testing.assert_allclose(got.scatter, want.scatter, rtol=1e-9, atol=1e-9 * want.scatter.max())
    assert len(card.tall(178)) > 20  # rows of a block


CHOSEN = (
    "PCA eigh",
    "PCA randomized",
    "PCA sparse",
    "LinearAutoencoder",
    "ALS implicit",
    "ALS nonnegative",
    "GaussianMixture",
    "Mixture bernoulli",
    "PLSA",
    "LDA cvb0",
    "LDA online",
    "NMF",
    "NMF kl dense",
    "NMF gaps",
    "GloVe als",
    "PMI",
    "EASE",
    "MixedTable",
)
"""Those that are quick; the others are in the test below or in ``tests/gpu.py pretended``."""


@pytest.mark.parametrize("case", CHOSEN)
def test_models_fit_on_the_card(case):
    """Not one tensor of the host in an operation on the card: answers are those of CPU tensors, or
    good ones of another start."""
    name, options, kind, verbs = CASES[case]
    x = data()[kind]
    with PretendedCard() as card:
        model = getattr(eckart, name)(**options, engine=made(1, "cuda"))
        if "random_state" in model.get_params():
            model.set_params(random_state=0)
        model.fit(x)
        answers = [np.asarray(getattr(model, verb)(x)) for verb in verbs]
    assert model.fit_.plan["engine"] == "cuda"
    assert all(np.isfinite(a).all() for a in answers)
    assert (
        model.certificate_.holds
        == getattr(eckart, name)(**{**model.get_params(), "engine": made(1, "cpu")})
        .fit(x)
        .certificate_.holds
    )
    # a model that is not written for the GPU copies nothing
    assert card.waits.total() or case == "MixedTable"


BOTH = ROWS, COLUMNS, ROWS + 1, COLUMNS + 1
SWEEPS = {
    # a model that makes so many sweeps, data, sizes of arrays that stay on the card (beside those
    # of all entries), waits of a sweep at the most
    "ALS": (lambda n: eckart.ALS(3, max_iter=n, tol=0.0), ratings, BOTH, 40),
    "ALS float32": (
        lambda n: eckart.ALS(3, max_iter=n, tol=0.0),
        lambda: ratings(np.float32),
        BOTH,
        40,
    ),
    "ALS implicit": (
        lambda n: eckart.ALS(3, max_iter=n, tol=0.0, feedback="implicit"),
        counts,
        BOTH,
        40,
    ),
    "ALS huber": (lambda n: eckart.ALS(3, max_iter=n, tol=0.0, loss="huber"), ratings, BOTH, 16),
    "ALS poisson": (
        lambda n: eckart.ALS(3, max_iter=n, tol=0.0, loss="poisson"),
        lambda: np.round(ratings()),
        BOTH,
        20,
    ),
    "BayesianMF": (
        lambda n: eckart.BayesianMF(2, n_samples=1, burn_in=n, thin=1, n_chains=1),
        ratings,
        BOTH,
        9,
    ),
    "NMF": (lambda n: eckart.NMF(3, max_iter=n, tol=0.0, init="random"), dense, (ROWS,), 4),
    "NMF gaps": (lambda n: eckart.NMF(3, max_iter=n, tol=0.0, init="random"), ratings, BOTH, 2),
    "ALS nonnegative": (
        lambda n: eckart.ALS(3, max_iter=n, tol=0.0, nonnegative=True),
        ratings,
        BOTH,
        40,
    ),
    "NMF kl": (
        lambda n: eckart.NMF(3, max_iter=n, tol=0.0, init="random", beta_loss="kl"),
        counts,
        BOTH,
        2,
    ),  # each half asks once whether rows move
    "NMF kl dense": (
        lambda n: eckart.NMF(3, max_iter=n, tol=0.0, init="random", beta_loss="kl"),
        dense,
        (ROWS,),
        2,
    ),
    "LDA cvb0": (
        lambda n: eckart.LDA(3, learning_method="cvb0", max_iter=n, tol=0.0),
        counts,
        (ROWS,),
        4,
    ),
    "LDA gibbs": (
        lambda n: eckart.LDA(3, max_iter=2, burn_in=n, n_samples=1, learning_method="gibbs"),
        counts,
        (ROWS, int(counts().sum())),
        3,
    ),  # two chains
    "PLSA": (lambda n: eckart.PLSA(3, max_iter=n, tol=0.0), counts, (ROWS,), 3),
    "GaussianMixture": (
        lambda n: eckart.GaussianMixture(2, max_iter=n, tol=0.0),
        dense,
        (ROWS,),
        1,
    ),
    "GaussianMixture gaps": (
        lambda n: eckart.GaussianMixture(2, max_iter=n, tol=0.0),
        ratings,
        (ROWS,),
        1,
    ),
    "GaussianMixture gaps full": (
        lambda n: eckart.GaussianMixture(2, max_iter=n, tol=0.0, covariance_type="full"),
        ratings,
        (ROWS,),
        1,
    ),
    "GaussianMixture factor": (
        lambda n: eckart.GaussianMixture(2, max_iter=n, tol=0.0, covariance_type="factor"),
        ratings,
        (ROWS,),
        1,
    ),
    "PCA gaps": (lambda n: eckart.PCA(2, max_iter=n, tol=0.0), ratings, (ROWS,), 3),
}


@pytest.mark.parametrize("case", SWEEPS)
def test_nothing_tall_crosses_between_sweeps(case, monkeypatch):
    """Twice as many sweeps copy no more arrays with as many rows as the data has rows or columns:
    those that cross do so at the start and at the end."""
    # small corpora are the CPU engine's
    monkeypatch.setattr("eckart.engines.cpu.topics.gibbs.EXACT_TOKENS", 0)
    make, given, sizes, most = SWEEPS[case]
    x, tall, waits = given(), [], []
    sizes = *sizes, int(np.isfinite(x).sum()) if isinstance(x, np.ndarray) else x.nnz
    for sweeps in (4, 8):
        with PretendedCard() as card:
            make(sweeps).set_params(engine=made(1, "cuda"), random_state=0).fit(x)
        tall.append(sorted(move[:2] for move in card.tall(*sizes)))
        waits.append(card.waits.total())
    assert tall[0] == tall[1], card.said()
    assert (waits[1] - waits[0]) / 4 <= most, card.said()


def test_a_tensor_on_the_card_is_taken_where_it_lies():
    """Rows never come to the host, and codes are a tensor of the card."""
    x = np.random.default_rng(3).standard_normal((ROWS, 8))
    with PretendedCard() as card:
        rows = torch.from_numpy(x).cuda()
        card.moves.clear()
        model = eckart.PCA(2, random_state=0, svd_solver="eigh").fit(rows)
        codes = model.transform(rows)
        assert isinstance(codes, CardTensor)
        assert not card.tall(ROWS)
        found = fetched(codes)
    assert model.fit_.plan["engine"] == "cuda"
    np.testing.assert_allclose(
        found, eckart.PCA(2, random_state=0, svd_solver="eigh").fit_transform(x), atol=1e-10
    )


def test_rows_with_gaps_travel_once(monkeypatch):
    """The look at them that finds a gap, and the mixture that takes them with it, share one
    copy."""
    monkeypatch.setattr("eckart.explain.mixtures.starts.SAMPLE_ROWS", 16)
    monkeypatch.setattr("eckart.explain.mixtures.starts.SAMPLE_BYTES", 0)
    x = np.random.default_rng(3).standard_normal((200, 8))
    x[::3, 2] = np.nan
    with PretendedCard() as card:
        eckart.GaussianMixture(2, random_state=0, engine=made(1, "cuda")).fit(x)
    assert [move.way for move in card.tall(200)] == ["up"], card.said()


@pytest.mark.parametrize("gaps", [False, True])
def test_a_mixture_of_rows_on_the_card_fetches_a_sample_alone(monkeypatch, gaps):
    monkeypatch.setattr("eckart.explain.mixtures.starts.SAMPLE_ROWS", 16)
    monkeypatch.setattr("eckart.explain.mixtures.starts.SAMPLE_BYTES", 0)
    monkeypatch.setattr("eckart.explain.mixtures.gaussian_steps.STEP_ROWS", 16)
    x = np.random.default_rng(3).standard_normal((200, 8))
    if gaps:
        x[::3, 2] = np.nan
    with PretendedCard() as card:
        rows = torch.from_numpy(x).cuda()
        card.moves.clear()
        model = eckart.GaussianMixture(2, random_state=0, engine=made(1, "cuda")).fit(rows)
        assert not card.tall(200), card.said()
    assert (
        model.certificate_.holds
        == eckart.GaussianMixture(2, random_state=0, engine="cpu").fit(x).certificate_.holds
    )


class Watched(PretendedCard):
    """A card that knows the size of the largest tensor that was made on it."""

    largest = 0

    def _wrapped(self, found, cards):
        self.largest = max([self.largest, *(a.numel() for a in pretended.tensors_in(found))])
        return super()._wrapped(found, cards)


def test_rows_without_entries_share_one_matrix():
    """A matrix for each of them would take gigabytes: 3,000 rows of 200 numbers have room in a few
    megabytes beside the draws."""
    rows, k = 3000, 200
    rng = np.random.default_rng(4)
    x = Observed(
        np.minimum(np.arange(rows + 1), 3), np.array([0, 1, 0]), np.array([1.0, -1.0, 2.0]), 2
    )
    v, noise, base = rng.standard_normal((2, k)), rng.standard_normal((rows, k)), np.eye(k) + 0.1
    with Watched() as card:
        engine = made(1, "cuda")
        got = engine.get(
            engine.ridge_rows(
                engine.put(x), v, RidgeRule(0.0), base=base, noise=noise, prior=np.ones((1, k))
            ).left
        )
    root = np.linalg.inv(np.linalg.cholesky(base))
    np.testing.assert_allclose(
        got[3:], root.T @ root @ np.ones(k) + noise[3:] @ root, rtol=1e-4, atol=1e-4
    )  # in float32, where a bound allows it
    assert 0 < card.largest <= 2 * rows * k


def test_sums_of_many_blocks_are_not_held_until_the_last():
    """A hundred blocks of three rows with gaps: nothing larger is made than what the answer and the
    entries take."""
    rng = np.random.default_rng(6)
    x = rng.standard_normal((300, 12))
    x[rng.random(x.shape) < 0.3] = np.nan
    with Watched() as card:
        engine = made(1, "cuda")
        engine.room.chunk = 3 * 8 * (8 * 12 + 6 * 20 * 20 + 1)
        stats = engine.gap_statistics(
            engine.put(Observed.from_nan(x)), rng.standard_normal((12, 20)), np.zeros(12), 0.5
        )
    assert 0 < card.largest <= 2 * stats.gram.size


def of_benchmarks(name):
    """A script of the benchmarks under a name of its own: tests/gpu.py may be loaded as ``gpu``."""
    spec = importlib.util.spec_from_file_location(
        f"benchmarks_{name}", Path(__file__).parents[1] / "benchmarks" / f"{name}.py"
    )
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_for_a_card_names_works_that_there_are(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    card, cores, gpu = (of_benchmarks(name) for name in ("card", "cores", "gpu"))
    assert set(card.OLD_CORES) <= set(cores.WORKS)
    assert {*card.MISSED, *card.NEVER_COLD, *card.NEW} <= set(gpu.WORKS)
    assert sum(step.seconds for step in card.STEPS[:2]) < 570


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("Autoencoder", {"hidden": [8], "noise": 0.3}),
        ("Autoencoder", {"hidden": [8], "precision": "float64", "weight_decay": 1e-3}),
        ("ConvAutoencoder", {"image": (4, 4), "channels": (4,)}),
        ("NetworkClassifier", {"hidden": [8], "dropout": 0.2}),
        ("NetworkRegressor", {"hidden": [8]}),
    ],
)
def test_networks_train_on_the_card(monkeypatch, name, more):
    """Step by step, since CUDA graphs need a real one."""
    from eckart.nn import steps, train

    monkeypatch.setattr(train, "steps_of", steps.TrainingSteps)
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((120, 3)) @ rng.standard_normal((3, 16))).astype(np.float32)
    y = x[:, 0] > 0 if name == "NetworkClassifier" else x[:, 0]
    given = (
        (x, y.astype(int) if name == "NetworkClassifier" else y)
        if name.startswith("Network")
        else (x,)
    )
    options = {"precision": "float32", "compile": False, "random_state": 0, "max_iter": 4, **more}
    if "coder" in name:
        options = {"n_components": 2, **options}
    fits = []
    for device in ("cuda", "cuda", "cpu"):
        with PretendedCard():
            model = getattr(eckart, name)(**options, device=device).fit(*given)
            answers = np.asarray(
                getattr(model, "predict" if name.startswith("Network") else "transform")(x)
            )
        fits.append((model.loss_curve_.tolist(), answers))
    assert fits[0][0] == fits[1][0]
    np.testing.assert_array_equal(fits[0][1], fits[1][1])
    if not {"noise", "dropout"} & set(more):  # whose numbers the card draws itself
        np.testing.assert_allclose(fits[0][0], fits[2][0], rtol=1e-3)


@pytest.mark.parametrize("optimizer", ["adam", "heavy_ball", "nesterov", "adagrad"])
def test_a_killed_network_goes_on_on_the_card(monkeypatch, tmp_path, optimizer):
    """What its file holds comes back to the card: the same curve and weights as without the
    kill."""
    from eckart.nn import steps, train

    monkeypatch.setattr(train, "steps_of", steps.TrainingSteps)
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    x = (np.random.default_rng(6).standard_normal((120, 3)) @ np.ones((3, 8))).astype(np.float32)
    options = {
        "hidden": [8],
        "max_iter": 5,
        "precision": "float32",
        "compile": False,
        "random_state": 0,
        "noise": 0.2,
    }
    options |= {"device": "cuda", "optimizer": optimizer}
    epoch = train._epoch

    def stopped():
        raise MemoryError

    with PretendedCard():
        whole = eckart.Autoencoder(2, **options).fit(x)
        with monkeypatch.context() as m:
            m.setattr(
                train,
                "_epoch",
                lambda steps, order, recipe, at, fall: (
                    stopped() if at == 3 else epoch(steps, order, recipe, at, fall)
                ),
            )
            with pytest.raises(MemoryError):
                eckart.Autoencoder(2, **options, checkpoint=tmp_path / "state").fit(x)
        seen = []
        monkeypatch.setattr(train, "_epoch", lambda *a: seen.append(a[3]) or epoch(*a))
        resumed = eckart.Autoencoder(2, **options, checkpoint=tmp_path / "state").fit(x)
    assert seen[0] > 0
    assert resumed.loss_curve_.tolist() == whole.loss_curve_.tolist()
    for name, w in whole.fit_.factors.weights.items():
        np.testing.assert_array_equal(resumed.fit_.factors.weights[name], w)
