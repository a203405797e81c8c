"""The pictures of the README, written to docs/images: `python docs/make_images.py` makes all of
them, `... speed` or another name only that one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.datasets import load_digits, load_iris, load_sample_image

from eckart import (
    ALS,
    LDA,
    NMF,
    PCA,
    GaussianMixture,
    Observed,
    SkipGram,
    SoftImpute,
    cooccurrence,
    corpus,
    plots,
    sequences,
)
from eckart.io.datasets import docstrings
from eckart.plots.style import INK, coloured, montage


def reduce(folder: Path) -> Path:
    """Digits: components, reconstructions, a map."""
    digits = load_digits()
    pca = PCA(n_components=30, random_state=0).fit(digits.data)
    fig = Figure(figsize=(11.5, 4.3), layout="constrained")
    grid = fig.add_gridspec(2, 2, width_ratios=[1.25, 1], height_ratios=[1, 2.5])
    top, bottom, right = (
        fig.add_subplot(grid[0, 0]),
        fig.add_subplot(grid[1, 0]),
        fig.add_subplot(grid[:, 1]),
    )
    plots.components_as_images(pca, (8, 8), top, count=7, columns=8)
    shown = [int(np.flatnonzero(digits.target == d)[3]) for d in range(10)]
    plots.reconstructions(pca, digits.data[shown], (8, 8), (2, 10, 30), bottom)
    plots.code_map(
        pca.transform(digits.data), digits.target, right, shares=pca.explained_variance_ratio_
    )
    words = (
        "An image is the mean plus a sum of components",
        "Digits rebuilt from k numbers",
        "A map of 1797 digits",
    )
    for ax, title in zip((top, bottom, right), words):
        ax.set_title(title, loc="left", fontsize=11.5, color=INK, pad=14 if ax is top else 6)
    target = folder / "reduce.png"
    fig.savefig(target, dpi=100, facecolor="white")
    return target


def restored(holes: np.ndarray, size: int = 8, stride: int = 4) -> np.ndarray:
    """A picture filled in from its overlapping patches, each a row of a matrix with gaps."""
    top, left = (np.arange(0, length - size + 1, stride) for length in holes.shape[:2])
    windows = sliding_window_view(holes, (size, size), axis=(0, 1))[top][:, left]
    table = windows.reshape(len(top) * len(left), -1)
    pieces = (
        ALS(12, l2=0.005, random_state=0)
        .fit_transform(table)
        .reshape(len(top), len(left), 3, size, size)
    )
    total, count = np.zeros_like(holes), np.zeros((*holes.shape[:2], 1))
    for i, row in zip(top, pieces):
        for j, piece in zip(left, row):
            total[i : i + size, j : j + size] += piece.transpose(1, 2, 0)
            count[i : i + size, j : j + size] += 1
    return np.clip(total / count, 0, 1)


def dishes() -> ALS:
    """A model of 200 people and 60 dishes of five kitchens."""
    rng = np.random.default_rng(1)
    names = [
        f"{kitchen} {i + 1}"
        for kitchen in ("curry", "pasta", "taco", "noodle", "stew")
        for i in range(12)
    ]
    score = (
        3.2
        + 0.9 * np.repeat(rng.standard_normal((200, 5)), 12, axis=1)
        + 0.4 * rng.standard_normal((200, 60))
    )
    i, j = np.nonzero(rng.random(score.shape) < 0.3)
    return ALS(5, random_state=0).fit(Observed.from_triples(i, np.array(names)[j], score[i, j]))


def complete(folder: Path) -> Path:
    """A photograph restored, the saddle, the path of the nuclear norm, a map of columns."""
    photo = load_sample_image("flower.jpg")[:424] / 255.0
    photo = photo.reshape(212, 2, 320, 2, 3).mean(axis=(1, 3))
    holes = np.where(np.random.default_rng(0).random((212, 320, 1)) < 0.7, np.nan, photo)
    rng = np.random.default_rng(0)
    table = (
        rng.standard_normal((120, 5)) * np.array([2.0, 1.6, 1.3, 1.1, 0.9])
    ) @ rng.standard_normal((5, 100))
    table[rng.random(table.shape) < 0.6] = np.nan
    table += 0.7 * rng.standard_normal(table.shape)
    path = SoftImpute(tau=5.0, path=25, random_state=0).fit(table)
    fig = Figure(figsize=(11.5, 6.8), layout="constrained")
    grid = fig.add_gridspec(2, 3, height_ratios=[1, 1.35])
    top = fig.add_subplot(grid[0, :])
    field, fall, chart = (fig.add_subplot(grid[1, c]) for c in range(3))
    picture = restored(holes)
    psnr = -10 * np.log10(np.mean((picture - photo)[np.isnan(holes)] ** 2))
    plots.triptych(
        photo,
        holes,
        picture,
        top,
        titles=("original", "70 % missing", f"restored, PSNR {psnr:.1f} dB"),
    )
    plots.saddle_field(1.0, field, starts=((0.1, 0.1), (1.8, 0.2), (-1.3, 1.3), (-1.3, 1.6)))
    plots.shrinkage_path(path.path_taus_, path.path_singular_values_, fall)
    fall.set_xticks([50, 20, 10, 5], ["50", "20", "10", "5"], minor=False)
    fall.set_xticks([], minor=True)
    plots.factor_map(dishes(), ax=chart)
    chart.margins(0.2)
    words = (
        "Why it is hard: a saddle",
        "The nuclear norm finds the rank",
        "Columns that are rated alike",
    )
    for ax, title in zip((field, fall, chart), words):
        ax.set_title(title, loc="left", fontsize=11.5, color=INK)
    target = folder / "complete.png"
    fig.savefig(target, dpi=100, facecolor="white")
    return target


def explain(folder: Path) -> Path:
    """Topics of documentation and their map, soft clusters of flowers, parts of digits."""
    counts = corpus(docstrings(), min_df=5, max_df=0.2, stop_words="english")
    topics = LDA(15, random_state=0).fit(counts)
    iris, digits = load_iris(), load_digits()
    mixture = GaussianMixture(3, random_state=0, n_init=5).fit(iris.data)
    parts = NMF(24, random_state=0).fit(digits.data).components_.reshape(24, 8, 8)
    peak = parts.max(axis=(1, 2))
    fig = Figure(figsize=(11.5, 7.6), layout="constrained")
    grid = fig.add_gridspec(2, 2, width_ratios=[1.35, 1], height_ratios=[1, 1])
    words, chart, cloud, tiles = (fig.add_subplot(grid[i, j]) for i in (0, 1) for j in (0, 1))
    plots.topic_words(topics, words, topics=np.argsort(-topics.sizes_)[:8], words=6)
    names = [iris.feature_names[2], iris.feature_names[3]]
    shapes = {
        "means": mixture.means_,
        "covariances": mixture.covariances_,
        "weights": mixture.weights_,
    }
    plots.soft_clusters(
        iris.data, mixture.predict_proba(iris.data), cloud, axes=(2, 3), names=names, **shapes
    )
    tiles.imshow(montage(coloured(parts, "gray_r", -0.12 * peak, peak), 6, 1))
    tiles.set_axis_off()
    titles = (
        "Topics of 2,700 docstrings",
        "A map of the topics",
        "Soft clusters",
        "Parts that add up to digits",
    )
    fig.canvas.draw()
    plots.topic_map(topics, chart, words=2)
    for ax, title in zip((words, chart, cloud, tiles), titles):
        ax.set_title(title, loc="left", fontsize=11.5, color=INK)
    target = folder / "explain.png"
    fig.savefig(target, dpi=100, facecolor="white")
    return target


SUBJECTS = {
    "linear algebra": "eigenvalues eigenvectors singular decomposition orthogonal unitary triangular "
    "hermitian",
    "probability": "distribution probability density cumulative variance mean moments percentile",
    "learning": "classifier regression estimator clustering trees classification boosting",
    "signals": "filter frequency signal window spectral fourier spectrum sampling",
    "optimisation": "minimum constraint gradient jacobian minimization objective bounds hessian",
}


def embed(folder: Path) -> Path:
    """A map of words of documentation, neighbours of some, and skip-gram at its optimum."""
    text = sequences([text for _, text in docstrings()], min_count=10)
    model = SkipGram(50, sample=1e-4, max_iter=10, deterministic=True, random_state=0).fit(text)
    rng = np.random.default_rng(0)
    follows = np.cumsum(rng.dirichlet(np.full(12, 1.5), 12), axis=1)
    walk = [0]
    for u in rng.random(60_000):
        walk.append(min(int(np.searchsorted(follows[walk[-1]], u)), 11))
    pairs = cooccurrence(
        [part.tolist() for part in np.array_split(np.array(walk), 300)], window=1, min_count=1
    )
    exact = SkipGram(
        12, negatives=5, noise_exponent=1.0, max_iter=5000, tol=1e-15, random_state=0
    ).fit(pairs)
    fig = Figure(figsize=(11.5, 7.4), layout="constrained")
    grid = fig.add_gridspec(2, 2, width_ratios=[1.5, 1], height_ratios=[1.35, 1])
    chart, near, line = (
        fig.add_subplot(grid[0, :]),
        fig.add_subplot(grid[1, 0]),
        fig.add_subplot(grid[1, 1]),
    )
    asked = ["eigenvalues", "filter", "gradient", "float64"]
    plots.plot_neighbours(model, asked, near, n=7)
    plots.plot_pmi_optimum(exact, pairs, line)
    fig.canvas.draw()
    subject = {word: name for name, words in SUBJECTS.items() for word in words.split()}
    plots.plot_map(model, list(subject), chart, groups=list(subject.values()))
    titles = (
        "Words of documentation, from the words beside them",
        "Nearest words and their cosines",
        "Skip-gram factorizes PMI - log 5",
    )
    for ax, title in zip((chart, near, line), titles):
        ax.set_title(title, loc="left", fontsize=11.5, color=INK)
    target = folder / "embed.png"
    fig.savefig(target, dpi=100, facecolor="white")
    return target


RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"


def measured(file: str, task: str, contender: str) -> dict:
    """The latest result of a contender at a task."""
    runs = [json.loads(line) for line in (RESULTS / f"{file}.jsonl").read_text().splitlines()]
    rows = [
        row
        for run in runs
        for row in run["rows"]
        if (row["task"], row["contender"]) == (task, contender)
    ]
    return rows[-1]


def comparisons() -> list[tuple[str, str, float, float]]:
    """Work, rival, the rival's seconds, and our seconds until the answer is as good; one case a
    verb, as in benchmarks/README.md."""
    wide = [measured("reduce", "wide", who)["seconds"] for who in ("sklearn auto", "eckart")]
    libmf, als = (measured("complete", "explicit k=16", who) for who in ("libmf", "eckart"))
    fitted = next(seconds for _, seconds, rmse in als["curve"] if rmse <= libmf["rmse"])
    tomotopy = measured("topics", "counts", "tomotopy 50,100,150,200,300,400,500")
    lda = measured("topics", "counts", "eckart cvb0 max_iter=20")
    sampled = min(
        seconds
        for _, seconds, perplexity in tomotopy["curve"]
        if perplexity < lda["perplexity"] + 5
    )
    gensim = measured("embed", "sgns 5M", "gensim corpus_file 2 workers rate 0.05")
    skipgram = measured("embed", "sgns 5M", "eckart SkipGram")
    return [
        ("reduce: PCA, 20,000 x 4,096, k = 64", "scikit-learn", *wide),
        ("complete: 18 M ratings, k = 16", "LIBMF", libmf["seconds"], fitted),
        ("explain: LDA, 2.4 M tokens, 50 topics", "tomotopy", sampled, lda["seconds"]),
        ("embed: skip-gram, 5 M words, 5 passes", "gensim", gensim["seconds"], skipgram["whole"]),
    ]


def speed(folder: Path) -> Path:
    """One bar for each verb: how many times as long the fastest rival takes."""
    rows = comparisons()[::-1]
    fig = Figure(figsize=(9, 2.3), layout="constrained")
    ax = fig.add_subplot()
    ratios = [theirs / ours for _, _, theirs, ours in rows]
    ax.barh([work for work, *_ in rows], ratios, color="#2f6db3", height=0.6)
    for at, (ratio, (_, rival, theirs, ours)) in enumerate(zip(ratios, rows)):
        ax.text(
            ratio + 0.08,
            at,
            f"{ratio:.1f}   {rival} {theirs:.1f} s, eckart {ours:.1f} s",
            va="center",
            color=INK,
        )
    ax.axvline(1, color=INK, linewidth=0.8)
    ax.set_xlim(0, 1.7 * max(ratios))
    ax.set_xlabel("seconds of the fastest rival / seconds of eckart, on two cores", color=INK)
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.spines[["top", "right", "left"]].set_visible(False)
    target = folder / "speed.png"
    fig.savefig(target, dpi=150, facecolor="white")
    return target


GPU_LINES = {
    "cores": ("16 cores", "#8a8a8a"),
    "from host": ("GPU, data on the host", "#7fb0e6"),
    "resident": ("GPU, data there", "#2f6db3"),
    "rival": ("PyTorch on the GPU, no certificate", "#d98032"),
}


def gpu(folder: Path) -> Path:
    """Seconds against stored numbers, one panel for each work of ``benchmarks/gpu_sizes.py``."""
    lines = (RESULTS / "gpu_sizes.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    works = list(dict.fromkeys(row["work"] for row in rows))
    fig = Figure(figsize=(11, 2.9), layout="constrained")
    for at, work in enumerate(works):
        ax = fig.add_subplot(1, len(works), at + 1)
        mine = [row for row in rows if row["work"] == work]
        for key, (title, colour) in GPU_LINES.items():
            seen = [(row["entries"], row[key]) for row in mine if key in row]
            if seen:
                ax.loglog(*zip(*seen), color=colour, marker="o", markersize=3, label=title)
        ax.set_title(work, fontsize=8, color=INK)
        ax.set_xlabel("stored numbers", fontsize=8, color=INK)
        ax.tick_params(which="both", labelsize=7, labelcolor=INK)
        ax.spines[["top", "right"]].set_visible(False)
    fig.axes[0].set_ylabel("seconds of a fit", fontsize=8, color=INK)
    handles = fig.axes[0].get_legend_handles_labels()
    fig.legend(
        *handles, loc="outside lower center", ncols=len(GPU_LINES), fontsize=8, frameon=False
    )
    target = folder / "gpu.png"
    fig.savefig(target, dpi=150, facecolor="white")
    return target


PICTURES = {draw.__name__: draw for draw in (reduce, complete, explain, embed, speed, gpu)}


def main(names: list[str], folder: Path = Path(__file__).parent / "images") -> list[Path]:
    folder.mkdir(exist_ok=True)
    return [PICTURES[name](folder) for name in names or PICTURES]


if __name__ == "__main__":
    print(*main(sys.argv[1:]), sep="\n")
