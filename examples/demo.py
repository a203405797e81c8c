"""`make demo`: reduce, complete, explain and embed data that every installation has or can make,
and write four reports.

Reduce: 1797 handwritten digits of 8 x 8 pixels as mean + components, reconstructions at k = 2, 10,
30, a 2-D map and the certificate; and a photograph whose rows are reduced the same way, once
complete and once with 30 % of its pixels missing.

Complete: a generated table of ratings, of which 8 % are shown. The others are known too, so the
true error stands beside the estimate from held-out ratings. Then a photograph with 70 % of its
pixels missing.

Explain: the documentation of NumPy, SciPy and scikit-learn, some 2,700 texts, as topics.

Embed: the words of the same texts as vectors, from the words that stand beside them.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.datasets import load_digits, load_sample_image

from eckart import ALS, LDA, PCA, Observed, SkipGram, corpus, metrics, plots, sequences
from eckart.io.datasets import docstrings
from eckart.plots.style import new_axes
from eckart.report.complete import complete_report, recovered
from eckart.report.embed import embed_report
from eckart.report.explain import explain_report
from eckart.report.held_out import judge
from eckart.report.reduce import reduce_report
from eckart.report.unseen import judge_topics


def photograph_picture(image: np.ndarray, k: int) -> tuple[object, float, float]:
    """A photograph, its rank-k version, and the same from 70 % of the pixels; root mean squared
    errors of both."""
    full = PCA(k, random_state=0).fit(image)
    shown = full.inverse_transform(full.transform(image))
    holes = image.copy()
    holes[np.random.default_rng(0).random(image.shape) < 0.3] = np.nan
    gappy = PCA(k, random_state=0).fit(holes)
    restored = gappy.inverse_transform(gappy.transform(holes))
    ax = new_axes(None, (13, 2.7))
    gap = np.ones((len(image), 12))
    tiles = [image, gap, shown, gap, np.nan_to_num(holes, nan=0.0), gap, restored]
    ax.imshow(np.clip(np.hstack(tiles), 0, 1), cmap="gray", vmin=0, vmax=1)
    step = image.shape[1] + 12
    words = ("original", f"rank {k}", "30 % of the pixels missing", f"rank {k}, from what is left")
    ax.set_xticks([image.shape[1] / 2 + i * step for i in range(4)], words)
    ax.set_yticks([])
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    rmse = [float(np.sqrt(np.mean((a - image) ** 2))) for a in (shown, restored)]
    return ax, rmse[0], rmse[1]


def reduce(target: Path) -> None:
    """The digits and the photograph, and out/report.html."""
    begin = time.perf_counter()
    digits = load_digits()
    pca = PCA(n_components=30, random_state=0).fit(digits.data)
    spectrum = PCA().fit(digits.data).explained_variance_ratio_
    page = reduce_report(
        pca,
        digits.data,
        name="handwritten digits",
        labels=digits.target,
        image=(8, 8),
        spectrum=spectrum,
    )
    photo = load_sample_image("china.jpg").mean(axis=2) / 255
    ax, complete, gappy = photograph_picture(photo, 40)
    page.section("The same on a photograph, with and without its pixels")
    page.pictures(
        (ax, f"Error per pixel: {complete:.3f} from all pixels, {gappy:.3f} from 70 % of them")
    )
    where = page.write(target / "report.html")
    c, share = pca.certificate_, pca.explained_variance_ratio_.sum()
    bound = c["share of the upper bound captured"]
    print(
        f"found     {pca.n_components_} of {digits.data.shape[1]} numbers keep "
        f"{share:.1%} of the variance of {len(digits.data)} digits"
    )
    print(
        f"evidence  certificate {'holds' if c.holds else 'does not hold'}: {bound:.10f} "
        "of what any 30 directions could capture"
    )
    print(
        f"gaps      a photograph at rank 40: error {complete:.3f} per pixel from all "
        f"pixels, {gappy:.3f} from 70 % of them"
    )
    print(f"report    {where} ({time.perf_counter() - begin:.1f} s)")


def ratings(
    people: int = 2000, films: int = 500, k: int = 5, shown: float = 0.08
) -> tuple[Observed, np.ndarray]:
    """Half stars from 0.5 to 5, a share of them as triples with ids; and all of them, which the
    model never sees."""
    rng = np.random.default_rng(0)
    score = 3.3 + 0.4 * rng.standard_normal((people, 1)) + 0.5 * rng.standard_normal(films)
    score += 0.4 * rng.standard_normal((people, k)) @ rng.standard_normal((k, films))
    stars = np.clip(np.rint(2 * (score + 0.5 * rng.standard_normal(score.shape))) / 2, 0.5, 5.0)
    i, j = np.nonzero(rng.random(stars.shape) < shown)
    names = np.array([f"film {f:03d}" for f in range(films)])
    return Observed.from_triples(
        i + 1000, names[j], stars[i, j], row_labels=np.arange(people) + 1000, column_labels=names
    ), stars


def restored_photograph(size: int = 8, stride: int = 4) -> tuple[object, float]:
    """A photograph, 30 % of its pixels, and what is made of them: every patch is a row of a matrix
    with gaps. PSNR over the missing pixels."""
    photo = load_sample_image("flower.jpg")[:424] / 255.0
    photo = photo.reshape(212, 2, 320, 2, 3).mean(axis=(1, 3))
    lost = np.random.default_rng(0).random(photo.shape[:2]) < 0.7
    holes = np.where(lost[..., None], np.nan, photo)
    top, left = (np.arange(0, length - size + 1, stride) for length in lost.shape)
    table = sliding_window_view(holes, (size, size), axis=(0, 1))[top][:, left].reshape(
        len(top) * len(left), -1
    )
    pieces = (
        ALS(12, l2=0.005, random_state=0)
        .fit_transform(table)
        .reshape(len(top), len(left), 3, size, size)
    )
    total, count = np.zeros_like(photo), np.zeros((*lost.shape, 1))
    for i, row in zip(top, pieces):
        for j, piece in zip(left, row):
            total[i : i + size, j : j + size] += piece.transpose(1, 2, 0)
            count[i : i + size, j : j + size] += 1
    restored = np.clip(total / count, 0, 1)
    psnr = float(-10 * np.log10(np.mean((restored - photo)[lost] ** 2)))
    words = (
        "original",
        "70 % of the pixels missing",
        f"restored, PSNR {psnr:.1f} dB where missing",
    )
    return plots.triptych(photo, holes, restored, titles=words), psnr


def complete(target: Path) -> None:
    """The ratings and the other photograph, and out/complete.html."""
    begin = time.perf_counter()
    seen, stars = ratings()
    held = judge(lambda x: ALS(5, random_state=0).fit(x), seen)
    model = ALS(5, random_state=0).fit(seen)
    unseen = np.ones(stars.shape, bool)
    unseen[np.repeat(np.arange(len(stars)), seen.row_counts()), seen.indices] = False
    true = metrics.rmse(stars[unseen], model.predict(seen.rows)[unseen])
    estimate, biases = held.scores["model"]["RMSE"], held.scores["biases only"]["RMSE"]
    page = complete_report(
        model, seen, held_out=held, name="generated ratings", names=("person", "film", "stars")
    )
    ax, psnr = restored_photograph()
    page.section("A photograph with 70 % of its pixels missing")
    page.pictures((ax, f"Restored from its patches: PSNR {psnr:.1f} dB over the missing pixels"))
    picture = target / "photograph.png"
    ax.figure.savefig(picture, dpi=100, facecolor="white")
    where = page.write(target / "complete.html")
    best = ", ".join(film for _, _, film, _ in model.recommend(1042, n=4).entries())
    c = model.certificate_
    print(
        f"complete  {seen.nnz} of {stars.size} ratings shown: error {estimate:.3f} on "
        f"held-out ones, {true:.3f} in truth, {biases:.3f} by biases only"
    )
    print(
        f"evidence  certificate {'holds' if c.holds else 'does not hold'} ({c.kind}): "
        f"relative gradient {c['relative gradient']:.1e}"
    )
    print(f"recovery  {recovered(seen, 5)[1]}")
    print(f"advice    person 1042 may like {best}")
    print(f"picture   {picture}: 70 % of the pixels missing, restored with PSNR {psnr:.1f} dB")
    print(f"report    {where} ({time.perf_counter() - begin:.1f} s)")


def explain(target: Path, documents: list[tuple[str, str]], k: int = 15) -> None:
    """The documentation, and out/explain.html."""
    begin = time.perf_counter()
    counts = corpus(documents, min_df=5, max_df=0.2, stop_words="english")
    unseen = judge_topics(LDA(k, random_state=0).fit, counts)
    model = LDA(k, random_state=0).fit(counts)
    texts = [text for _, text in documents]
    where = explain_report(
        model, counts, name="documentation", held_out=unseen, excerpts=texts
    ).write(target / "explain.html")
    c, p = model.certificate_, unseen.perplexities
    print(
        f"explain   {counts.shape[0]} docstrings of numpy, scipy and scikit-learn, "
        f"{counts.words_read} words, as {k} topics"
    )
    for z in range(k):
        print(f"topic {z + 1:>2}  {model.sizes_[z]:>5.1%}  {' '.join(model.top_words(7)[z])}")
    print(
        f"unseen    perplexity {p['model']:.0f} on {unseen.words} words of documents "
        f"that a fit has not seen, {p['word frequencies']:.0f} by word frequencies"
    )
    print(f"evidence  certificate {'holds' if c.holds else 'does not hold'} ({c.kind})")
    print(f"report    {where} ({time.perf_counter() - begin:.1f} s)")


def embed(target: Path, documents: list[tuple[str, str]]) -> None:
    """Words of the documentation, and out/embed.html."""
    begin = time.perf_counter()
    text = sequences([text for _, text in documents], min_count=10)
    model = SkipGram(50, sample=1e-4, max_iter=10, deterministic=True, random_state=0).fit(text)
    where = embed_report(model, text, name="documentation").write(target / "embed.html")
    v, c = model.vectors_, model.certificate_
    print(f"embed     {len(v)} words of {text.n_tokens} as vectors of {v.k} numbers, by skip-gram")
    for word in ("eigenvalues", "filter", "gradient", "true"):
        print(f"near      {word}: {' '.join(near for near, _ in v.neighbours(word, 6))}")
    for a, b, x in (("row", "rows", "column"), ("sine", "cosine", "sinh")):
        print(f"analogy   {a} is to {b} as {x} is to {v.analogy(a, b, x)[0][0]}")
    loss, bound, start = (
        c[name] for name in ("loss of a pair", "lower bound", "loss without vectors")
    )
    told = f"loss {loss:.3f}, {start:.3f} without vectors, {bound:.3f} at the unfactored optimum"
    print(f"evidence  certificate {'holds' if c.holds else 'does not hold'} ({c.kind}): {told}")
    print(f"report    {where} ({time.perf_counter() - begin:.1f} s)")


def main(folder: str = "out") -> None:
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    reduce(target)
    complete(target)
    documents = docstrings()
    explain(target, documents)
    embed(target, documents)


if __name__ == "__main__":
    main(*sys.argv[1:])
