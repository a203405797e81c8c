"""Word vectors: eckart against gensim and SciPy.

sgns 5M, sgns 17M   generated text: 30,000 words, 100 topics, sentences of 20 words, 60 % of them
from the topic of the sentence. Skip-gram, 100 numbers,
                    window 5, 5 negatives, 5 and 2 passes: words a second of the training (the
                    vocabulary is there already), share of the 10 nearest
                    neighbours that are of the same topic, for frequent and for rare words; each at
                    its own default rate, and at that of the other
text8               the first 2M words of text8: word similarity (Spearman) and analogies (share
right, all words), mean of three seeds
count               co-occurrences of the 17M words, window 10: tokens a second
pmi                 SVD of the positive PMI of the 5M words, 100 numbers: seconds, captured energy
glove               text8, 50 numbers: seconds to the loss that 15 AdaGrad passes end at
neighbours          see embed_neighbours.py
"""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness import cached, measure, run

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
V, T, L = 30_000, 100, 20
PASSES = {"sgns 5M": 5, "sgns 17M": 2}
SIMILARITY = ("WS-353-ALL", "MEN-TR-3k", "SIMLEX-999", "MTurk-771", "RG-65")
CASES = [
    ("sgns 5M", "gensim corpus_file 2 workers"),
    ("sgns 5M", "gensim corpus_file 2 workers rate 0.05"),
    ("sgns 5M", "eckart SkipGram"),
    ("sgns 5M", "eckart SkipGram rate 0.025 to a tenth"),
    ("sgns 5M", "eckart SkipGram deterministic"),
    ("sgns 17M", "gensim corpus_file 2 workers"),
    ("sgns 17M", "eckart SkipGram"),
    ("text8", "gensim corpus_file 2 workers"),
    ("text8", "gensim corpus_file 2 workers rate 0.05"),
    ("text8", "eckart SkipGram"),
    ("text8", "eckart SkipGram rate 0.05 to a tenth"),
    ("text8", "eckart SkipGram rate 0.025 to a tenth"),
    ("text8", "eckart PMI"),
    ("text8", "eckart GloVe"),
    ("text8", "eckart GloVe adagrad"),
    ("count", "eckart cooccurrence"),
    ("count", "eckart cooccurrence in 256 MB"),
    ("pmi", "scipy svds arpack"),
    ("pmi", "scipy svds propack"),
    ("pmi", "eckart PMI"),
    ("glove", "eckart adagrad 15 passes"),
    ("glove", "eckart als"),
]


def planted(sentences: int, seed: int = 41) -> np.ndarray:
    """Word numbers: those below 1,000 are common to all topics, the others belong to topic number
    mod 100."""
    rng = np.random.default_rng(seed)
    p = 1.0 / (np.arange(V) + 3.0)
    cdf = np.cumsum(p / p.sum())
    common = np.minimum(np.searchsorted(cdf, rng.random(sentences * L)), V - 1)
    topic = np.repeat(rng.integers(0, T, sentences), L)
    own = (common // T) * T + topic
    tokens = np.where((rng.random(sentences * L) < 0.6) & (own >= 1000), own, common)
    return np.minimum(tokens, V - 1).astype(np.int32).reshape(sentences, L)


def text_of(task: str, quick: bool) -> Path:
    sentences = (250_000 if "5M" in task else 850_000) // (50 if quick else 1)

    def write(path: Path) -> None:
        names = np.array([f"w{i}" for i in range(V)])
        with path.open("w") as out:
            for row in planted(sentences):
                out.write(" ".join(names[row]) + "\n")

    return cached(f"words_{sentences}.txt", write)


def purity(words: Any, vectors: np.ndarray) -> dict[str, float]:
    """Share of the 10 nearest topical words that are of the same topic; words in the order of
    falling counts."""
    rng = np.random.default_rng(0)
    ids = np.array([int(str(w)[1:]) for w in words])
    u = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    at = np.flatnonzero(ids >= 1000)
    label = ids[at] % T
    out = {}
    for band, first, last in (("frequent", 0, 3000), ("rare", min(16000, len(at) // 2), len(at))):
        asked = first + rng.permutation(last - first)[:1000]
        s = u[at[asked]] @ u[at].T
        s[np.arange(len(asked)), asked] = -9
        near = np.argpartition(-s, 10, axis=1)[:, :10]
        out[band] = round(float((label[near] == label[asked][:, None]).mean()), 4)
    return out


def text8() -> Path:
    """Lines of 1,000 words."""

    def write(path: Path) -> None:
        with gzip.open(SHARED / "text8-prefix" / "text8-prefix.txt.gz", "rt") as text:
            words = text.read().split()
        with path.open("w") as out:
            for a in range(0, len(words), 1000):
                out.write(" ".join(words[a : a + 1000]) + "\n")

    return cached("text8_lines.txt", write)


def scores(words: Any, vectors: np.ndarray) -> dict[str, float]:
    from eckart import Vectors, metrics

    v = Vectors(list(words), np.asarray(vectors))
    folder = SHARED / "word-eval"
    out = {name: metrics.word_similarity(v, folder / f"EN-{name}.txt").rho for name in SIMILARITY}
    found = metrics.analogies(v, folder / "questions-words.txt", restrict=None)
    return out | {
        "analogies": found.accuracy,
        "semantic": found.semantic.accuracy,
        "syntactic": found.syntactic.accuracy,
    }


def gensim_sgns(path: Path, passes: int, seed: int, rate: float) -> tuple[Any, float, int]:
    from gensim.models import Word2Vec

    m = Word2Vec(
        vector_size=100,
        window=5,
        negative=5,
        sg=1,
        hs=0,
        min_count=5,
        sample=1e-3,
        workers=2,
        seed=seed,
        epochs=passes,
        alpha=rate,
    )
    m.build_vocab(corpus_file=str(path))
    begin = time.perf_counter()
    m.train(
        corpus_file=str(path),
        total_examples=m.corpus_count,
        total_words=m.corpus_total_words,
        epochs=passes,
    )
    return m, time.perf_counter() - begin, m.corpus_total_words * passes


def sgns(task: str, contender: str, quick: bool) -> dict[str, Any]:
    path = text8() if task == "text8" else text_of(task, quick)
    passes = 5 if task == "text8" else PASSES[task]
    seeds = (1, 2, 3) if task == "text8" and not quick else (1,)
    seconds, words_read, told = [], 0, []
    if not contender.startswith("gensim"):
        from eckart import sequences

        s = sequences(path)
        some = [
            [f"word {(7 * i + j) % 500}" for j in range(20)] for i in range(500)
        ]  # so many that thinning leaves pairs
        model(contender, 1).set_params(n_components=2).fit(some)  # compile
    for seed in seeds:
        if contender.startswith("gensim"):
            m, spent, words_read = gensim_sgns(
                path, passes, seed, 0.05 if "0.05" in contender else 0.025
            )
            words, vectors = m.wv.index_to_key, m.wv.vectors
        else:
            m = model(contender, seed)
            if "SkipGram" in contender:
                m.set_params(max_iter=passes)
            begin = time.perf_counter()
            m.fit(s)
            whole = time.perf_counter() - begin
            spent = m.fit_.trace.seconds[-1] if "SkipGram" in contender else whole
            words_read = s.n_tokens * passes
            words, vectors = m.vectors_.words, m.vectors_.vectors
        seconds.append(spent)
        told.append(scores(words, vectors) if task == "text8" else purity(words, vectors))
    row: dict[str, Any] = {
        "seconds": round(min(seconds), 3),
        "runs": [round(t, 2) for t in seconds],
    }
    if "SkipGram" in contender or "gensim" in contender:
        row["words_per_s"] = round(words_read / min(seconds))
    if not contender.startswith("gensim"):
        row |= {"whole": round(whole, 2), "certificate": m.certificate_.holds}
    return row | {name: round(float(np.mean([t[name] for t in told])), 4) for name in told[0]}


def model(contender: str, seed: int) -> Any:
    from eckart import PMI, GloVe, SkipGram

    if "PMI" in contender:
        return PMI(100, random_state=seed)
    if "GloVe" in contender:
        return GloVe(100, solver="adagrad" if "adagrad" in contender else "als", random_state=seed)
    rate = 0.025 if "0.025" in contender else 0.05
    alone, last = "deterministic" in contender, rate / 10 if "tenth" in contender else 1e-4
    return SkipGram(
        100,
        window=5,
        negatives=5,
        learning_rate=rate,
        last_learning_rate=last,
        deterministic=alone,
        random_state=seed,
    )


def counting(contender: str, quick: bool) -> dict[str, Any]:
    from eckart import cooccurrence, sequences

    s = sequences(text_of("17M", quick))
    cooccurrence([["a", "b"]] * 9, window=10, min_count=1)
    limit = 2**28 if "256" in contender else 2**32
    row = measure(lambda: cooccurrence(s, window=10, max_memory=limit), 3)
    return row | {"tokens_per_s": round(s.n_tokens / row["seconds"]), "entries": row["result"].nnz}


def pmi(contender: str, quick: bool) -> dict[str, Any]:
    from eckart import PMI, cooccurrence
    from eckart.embed.pmi import pmi_matrix

    n = cooccurrence(text_of("5M", quick), window=10)
    m = pmi_matrix(n, dtype=np.float32).to_scipy()
    if contender.startswith("eckart"):
        PMI(2, window=1, min_count=1).fit([["a", "b", "c"]] * 9)
        row = measure(lambda: PMI(100, random_state=0).fit(n), 3)
        energy = float(np.sum(row["result"].singular_values_.astype(np.float64) ** 2))
        return row | {
            "energy": energy,
            "entries": m.nnz,
            "certificate": row["result"].certificate_.holds,
        }
    from scipy.sparse.linalg import svds

    solver = contender.split()[-1]
    row = measure(lambda: svds(m, 100, solver=solver, rng=np.random.default_rng(0)), 3)
    return row | {
        "energy": float(np.sum(row["result"][1].astype(np.float64) ** 2)),
        "entries": m.nnz,
    }


def glove(contender: str, quick: bool) -> dict[str, Any]:
    from eckart import GloVe, cooccurrence

    n = cooccurrence(text8(), window=10)
    GloVe(4, min_count=1, max_iter=1).fit([["a", "b", "c"]] * 9)
    if "adagrad" in contender:
        GloVe(4, min_count=1, max_iter=1, solver="adagrad").fit([["a", "b", "c"]] * 9)
    m = GloVe(50, solver="adagrad" if "adagrad" in contender else "als", random_state=0)
    if "adagrad" in contender:
        m.set_params(max_iter=15)
    begin = time.perf_counter()
    m.fit(n)
    whole = time.perf_counter() - begin
    trace = m.fit_.trace
    return {
        "seconds": round(whole, 3),
        "loss": trace.values,
        "at": [round(t, 3) for t in trace.seconds],
    }


def work(task: str, contender: str, quick: bool) -> dict[str, Any]:
    if task in ("sgns 5M", "sgns 17M", "text8"):
        return sgns(task, contender, quick)
    return {"count": counting, "pmi": pmi, "glove": glove}[task](contender, quick)


def report(rows: list[dict]) -> None:
    told = (
        "whole",
        "words_per_s",
        "tokens_per_s",
        "frequent",
        "rare",
        *SIMILARITY,
        "analogies",
        "energy",
        "extra_mb",
    )
    for row in rows:
        if "seconds" not in row:
            print(f"{row['task']:<11} {row['contender']:<32} failed: {row.get('error')}")
            continue
        more = "  ".join(f"{name} {row[name]:,.6g}" for name in told if name in row)
        print(f"{row['task']:<11} {row['contender']:<32} {row['seconds']:9.2f} s  {more}")
    adagrad = next(
        (r for r in rows if r["contender"] == "eckart adagrad 15 passes" and "loss" in r), None
    )
    als = next((r for r in rows if r["contender"] == "eckart als" and "loss" in r), None)
    if adagrad and als:
        met = next((t for v, t in zip(als["loss"], als["at"]) if v <= adagrad["loss"][-1]), None)
        print(
            f"GloVe: AdaGrad ends at {adagrad['loss'][-1]:.6g} after "
            f"{adagrad['at'][-1]} s; ALS is there after {met} s"
        )


if __name__ == "__main__":
    run(__file__, CASES, work, report)
