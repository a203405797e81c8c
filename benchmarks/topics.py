"""Topic models: eckart against tomotopy, gensim and scikit-learn, every model judged by the same
document completion.

counts      18,000 documents, 30,000 words, 2.38M tokens from a planted model with 50 topics; 2,000
further documents are held out.
            A contender that runs on in steps reports perplexity against seconds, so that times to
            the same perplexity can be compared
stream      100M tokens in sparse files on disk, one pass, 50 topics: seconds, tokens a second, peak
memory (gensim on the first 2M tokens)
newsgroups  20 newsgroups with its train / h1 / h2 halves: perplexity (fold in h1, score h2) and
NPMI on the training documents
bbc         BBC News: perplexity on its test documents, NPMI on all of them

All get k topics and start from alpha = 0.1, eta = 0.01 (their users' usual choice) unless they
learn them.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import CACHE, THREADS, cached, measure, run
from threadpoolctl import threadpool_limits

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
N, V, K = 20_000, 30_000, 50


def planted(path: Path) -> None:
    """theta ~ Dir(0.1); a topic is a Zipf base measure times gamma noise; half of each held-out
    document's tokens is seen."""
    from scipy import sparse

    rng = np.random.default_rng(21)
    base = 1.0 / (np.arange(V) + 5.0) ** 1.05
    base /= base.sum()
    phi = base * rng.gamma(0.06, 1 / 0.06, (K, V)) + 0.03 * base
    phi /= phi.sum(axis=1, keepdims=True)
    cdf = np.cumsum(phi, axis=1)
    theta = rng.dirichlet(np.full(K, 0.1), N)
    length = np.clip(rng.lognormal(np.log(112), 0.6, N), 20, 2000).astype(int)
    rows, columns = [], []
    for d in range(N):
        z, u = rng.choice(K, length[d], p=theta[d]), rng.random(length[d])
        for t in np.unique(z):
            found = np.minimum(np.searchsorted(cdf[t], u[z == t]), V - 1)
            columns.append(found)
            rows.append(np.full(found.size, d))
    i, j = np.concatenate(rows), np.concatenate(columns)
    a = sparse.csr_matrix((np.ones(len(i)), (i, j)), shape=(N, V))
    a.sum_duplicates()
    seen = rng.binomial(a[18_000:].data.astype(int), 0.5)
    with path.open("wb") as out:
        np.savez(
            out,
            data=a.data,
            indices=a.indices,
            indptr=a.indptr,
            seen=seen,
            phi=phi.astype(np.float32),
        )


def counts() -> tuple[Any, Any, Any, np.ndarray]:
    from scipy import sparse

    z = np.load(cached("topics_counts.npz", planted))
    a = sparse.csr_matrix((z["data"], z["indices"], z["indptr"]), shape=(N, V))
    held = a[18_000:].tocsr()
    halves = []
    for data in (z["seen"].astype(float), held.data - z["seen"]):
        half = held.copy()
        half.data = data
        half.eliminate_zeros()
        halves.append(half)
    return a[:18_000].tocsr(), *halves, z["phi"]


def judge(words: np.ndarray, seen: Any, scored: Any) -> float:
    """The one judge: pseudo-count 0.1, 50 updates from equal shares, floor 1e-12."""
    from eckart import document_completion

    return round(
        document_completion(
            words, seen, scored, prior=0.1, steps=50, n_threads=int(THREADS)
        ).perplexity,
        1,
    )


# ---- contenders: train -> p(w|z); a name says the settings


def eckart_words(x: Any, k: int, method: str, seed: int = 0, **more: Any) -> np.ndarray:
    from eckart import LDA

    return (
        LDA(k, learning_method=method, random_state=seed, n_threads=int(THREADS), **more)
        .fit(x)
        .topic_word_
    )


def sklearn_words(x: Any, k: int, passes: int) -> np.ndarray:
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(
        k,
        learning_method="batch",
        max_iter=passes,
        n_jobs=int(THREADS),
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        random_state=0,
        evaluate_every=-1,
    )
    with threadpool_limits(1):  # it starts processes of its own
        return model.fit(x).components_


def gensim_words(x: Any, k: int, passes: int) -> np.ndarray:
    from gensim.models import LdaMulticore

    documents = [
        list(zip(x.indices[a:b].tolist(), x.data[a:b].astype(int).tolist()))
        for a, b in zip(x.indptr[:-1], x.indptr[1:])
    ]
    names = {i: str(i) for i in range(x.shape[1])}
    begin = time.perf_counter()
    options = {
        "workers": int(THREADS),
        "chunksize": 1000,
        "passes": passes,
        "alpha": 0.1,
        "eta": 0.01,
    }
    with threadpool_limits(1):  # it starts processes of its own
        model = LdaMulticore(
            documents, num_topics=k, id2word=names, random_state=0, eval_every=None, **options
        )
    gensim_words.seconds = time.perf_counter() - begin  # type: ignore[attr-defined]
    return model.get_topics()


def tomotopy_model(x: Any, k: int, seed: int = 0) -> Any:
    import tomotopy as tp

    model = tp.LDAModel(tw=tp.TermWeight.ONE, k=k, alpha=0.1, eta=0.01, seed=seed)
    for a, b in zip(x.indptr[:-1], x.indptr[1:]):
        if b > a:
            model.add_doc(np.repeat(x.indices[a:b], x.data[a:b].astype(int)).astype(str).tolist())
    return model


def tomotopy_topics(model: Any, n: int) -> np.ndarray:
    out = np.zeros((model.k, n))
    columns = np.array([int(w) for w in model.used_vocabs])
    for z in range(model.k):
        out[z, columns] = model.get_topic_word_dist(z)
    return out


# ---- tasks


def planted_task(contender: str, quick: bool) -> dict[str, Any]:
    train, seen, scored, phi = counts()
    if quick:
        train = train[:1500]
    if contender == "oracle":
        return {
            "perplexity": judge(phi, seen, scored),
            "unigram": judge(train.sum(axis=0) + 0.01, seen, scored),
        }
    name, _, setting = contender.partition(" ")
    if name == "tomotopy":
        model = tomotopy_model(train, K)
        points, spent, done = [], 0.0, 0
        for stop in [int(v) for v in setting.split(",")]:
            begin = time.perf_counter()
            model.train(stop - done, workers=int(THREADS), show_progress=False)
            spent += time.perf_counter() - begin
            done = stop
            points.append([stop, round(spent, 2), judge(tomotopy_topics(model, V), seen, scored)])
        return {"seconds": round(spent, 2), "perplexity": points[-1][2], "curve": points}
    if name == "eckart":
        eckart_words(train[:200], 4, setting.split()[0], **_more(setting))
        found = measure(lambda: eckart_words(train, K, setting.split()[0], **_more(setting)), 3, 60)
    elif name == "sklearn":
        found = measure(lambda: sklearn_words(train, K, int(setting)), 1)
    else:
        found = measure(lambda: gensim_words(train, K, int(setting)), 1)
        found["seconds"] = found["best"] = round(gensim_words.seconds, 2)  # type: ignore[attr-defined]
    return {**found, "perplexity": judge(found["result"], seen, scored)}


def _more(setting: str) -> dict[str, int]:
    """max_iter=8,... after the method."""
    words = setting.split()
    return {
        k: int(v)
        for k, v in (item.split("=") for item in (words[1].split(",") if len(words) > 1 else []))
    }


def shard_files(quick: bool) -> list[str]:
    """100M tokens of the planted model in 25 files, made once."""
    from scipy import sparse

    from eckart import write_shards

    folder = CACHE / f"topic_shards{'_quick' if quick else ''}"
    count, size = (2, 3_000) if quick else (25, 30_000)
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        phi = np.load(cached("topics_counts.npz", planted))["phi"].astype(float)
        cdf = np.cumsum(phi, axis=1)
        rng = np.random.default_rng(5)

        def block() -> Any:
            theta, length = rng.dirichlet(np.full(K, 0.1), size), np.full(size, 134)
            z = np.concatenate(
                [np.repeat(np.arange(K), rng.multinomial(n, t)) for n, t in zip(length, theta)]
            )
            d, u, w = (
                np.repeat(np.arange(size), length),
                rng.random(len(z)),
                np.empty(len(z), np.int64),
            )
            for t in range(K):
                w[z == t] = np.minimum(np.searchsorted(cdf[t], u[z == t] * cdf[t, -1]), V - 1)
            a = sparse.csr_array((np.ones(len(w), np.float32), (d, w)), shape=(size, V))
            a.sum_duplicates()
            return a

        write_shards((block() for _ in range(count)), folder)
        (folder / "done").touch()
    return sorted(str(f) for f in folder.glob("*.npz"))


def stream_task(contender: str, quick: bool) -> dict[str, Any]:
    from eckart import LDA, shards

    files = shard_files(quick)
    _, seen, scored, _ = counts()
    pattern = str(Path(files[0]).parent / "*.npz")
    if contender == "eckart online":
        LDA(4, random_state=0, learning_method="online").fit(np.eye(8))
        found = measure(
            lambda: LDA(K, random_state=0, n_threads=int(THREADS)).fit(shards(pattern)), 1
        )
        model = found["result"]
        tokens, words = model.fit_.plan["tokens"], model.topic_word_
    else:
        from eckart.explain.topics.judge import split_tokens  # noqa: F401  (compiled before the clock starts)

        block = next(iter(shards(pattern))).to_scipy().tocsr()[:15_000]
        found = measure(lambda: gensim_words(block, K, 1), 1)
        found["seconds"] = found["best"] = round(gensim_words.seconds, 2)  # type: ignore[attr-defined]
        tokens, words = float(block.sum()), found["result"]
    return {
        **found,
        "tokens": tokens,
        "tokens_s": round(tokens / found["seconds"]),
        "perplexity": judge(words, seen, scored),
    }


def newsgroups() -> tuple[Any, Any, Any, Any]:
    """Train, h1, h2 as sparse counts, and the documents that NPMI is counted on."""
    from scipy import sparse
    from scipy.io import loadmat

    folder = SHARED / "20newsgroups-etm"
    n = len((folder / "vocab.txt").read_text().split())

    def load(part: str) -> Any:
        tokens, number = (
            loadmat(folder / f"bow_{part}_{kind}.mat")[kind].ravel()
            for kind in ("tokens", "counts")
        )
        rows = np.repeat(np.arange(len(tokens)), [t.size for t in tokens])
        data, columns = (
            np.concatenate([a.ravel() for a in v]).astype(float) for v in (number, tokens)
        )
        out = sparse.csr_matrix((data, (rows, columns.astype(int))), shape=(len(tokens), n))
        out.sum_duplicates()
        return out

    train = load("tr")
    return train, load("ts_h1"), load("ts_h2"), train


def bbc() -> tuple[Any, Any, Any, Any]:
    from sklearn.feature_extraction.text import CountVectorizer

    from eckart import split_tokens

    lines = (SHARED / "octis-corpora" / "BBC_News_corpus.tsv").read_text().splitlines()
    text, part = zip(*[line.split("\t")[:2] for line in lines])
    x = CountVectorizer(token_pattern=r"\S+").fit_transform(text).astype(float).tocsr()
    test = np.array([p == "test" for p in part])
    seen, scored = split_tokens(x[test], random_state=0)
    return x[~test], seen.to_scipy(), scored.to_scipy(), x


def real_task(task: str, contender: str, quick: bool) -> dict[str, Any]:
    """Quality on real text, the mean over three seeds (scikit-learn: one)."""
    from eckart import coherence, topic_diversity

    train, seen, scored, whole = newsgroups() if task.startswith("newsgroups") else bbc()
    k = 50 if task.startswith("newsgroups") else 20
    name, _, setting = contender.partition(" ")
    rows = []
    for seed in range(1 if quick or name == "sklearn" else 3):
        if name == "eckart":
            eckart_words(train[:100], 4, setting)
            found = measure(lambda: eckart_words(train, k, setting, seed), 1)  # noqa: B023
        elif name == "sklearn":
            found = measure(lambda: sklearn_words(train, k, int(setting)), 1)
        else:
            model = tomotopy_model(train, k, seed)
            train_model = partial(model.train, int(setting), workers=int(THREADS))
            found = measure(partial(train_model, show_progress=False), 1)
            found["result"] = tomotopy_topics(model, train.shape[1])
        words = np.asarray(found.pop("result"), float)
        tops = [np.argsort(-row, kind="stable")[:10].tolist() for row in words]
        quality = {"npmi": float(coherence(tops, whole).mean()), "diversity": topic_diversity(tops)}
        rows.append({**found, "perplexity": judge(words, seen, scored), **quality})
    mean = {name: round(float(np.mean([row[name] for row in rows])), 4) for name in rows[0]}
    return mean | {"seeds": len(rows), "npmi_seeds": [round(row["npmi"], 4) for row in rows]}


def work(task: str, contender: str, quick: bool) -> dict[str, Any]:
    sys.path.insert(0, str(Path(__file__).parent))
    if task == "counts":
        return planted_task(contender, quick)
    return stream_task(contender, quick) if task == "stream" else real_task(task, contender, quick)


def report(rows: list[dict]) -> None:
    for row in rows:
        if "error" in row:
            print(f"{row['task']:<12}{row['contender']:<34}{row['error']}")
            continue
        tail = "".join(
            f"  {name} {row[name]}"
            for name in ("npmi", "diversity", "tokens_s", "unigram")
            if name in row
        )
        told = (
            f"{row.get('seconds', '-'):>9} s  perplexity {row['perplexity']:>8}  "
            f"+{row.get('extra_mb', '-')} MB"
        )
        print(f"{row['task']:<12}{row['contender']:<38}{told}{tail}")


CASES = [
    ("counts", "oracle"),
    ("counts", "eckart cvb0 max_iter=20"),
    ("counts", "eckart cvb0 max_iter=26"),
    ("counts", "eckart cvb0"),
    ("counts", "eckart gibbs"),
    ("counts", "eckart variational max_iter=20"),
    ("counts", "tomotopy 50,100,150,200,300,400,500"),
    ("counts", "gensim 10"),
    ("counts", "sklearn 30"),
    ("stream", "eckart online"),
    ("stream", "gensim"),
    *(("newsgroups", c) for c in ("eckart gibbs", "eckart cvb0", "tomotopy 500", "sklearn 30")),
    *(("bbc", c) for c in ("eckart gibbs", "eckart cvb0", "tomotopy 500", "sklearn 30")),
]

if __name__ == "__main__":
    run(__file__, CASES, work, report)
