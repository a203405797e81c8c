"""Networks on real images: reconstruction error, maps and classes beside PCA; and, on a GPU, images
a second and the share of the matrix-product peak.

Quality is on rows that no fit has seen: Fashion-MNIST's test images; a fifth of the faces.
``BENCH_DEVICE=cuda`` runs the same cases on a GPU, and the cases "speed" and "peak", which a CPU
skips. The data are looked for in ``../shared/data`` beside the repository, or in the folder that
``ECKART_DATA`` names.
"""

from __future__ import annotations

import gzip
import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import THREADS, run

DATA = Path(os.environ.get("ECKART_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
DEVICE = os.environ.get("BENCH_DEVICE", "cpu")
CASES = [
    ("linear k=8", "Autoencoder"),
    ("cbcl k=20", "Autoencoder"),
    ("olivetti k=20", "Autoencoder"),
    ("fashion k=30", "Autoencoder"),
    ("fashion k=2", "Autoencoder"),
    ("fashion classes", "NetworkClassifier"),
    ("fashion k=30", "ConvAutoencoder"),
    *(
        ("by default", name)
        for name in (
            "letters",
            "pen_digits",
            "satellite",
            "textures",
            "image_segments",
            "digits_full",
        )
    ),
    ("speed", "Autoencoder"),
    ("speed", "plain loop"),
    ("speed", "ConvAutoencoder"),
    ("peak", "dense 8192"),
]


def fashion(part: str) -> tuple[np.ndarray, np.ndarray]:
    """Images from 0 to 1 as rows of 784, and labels."""
    folder = DATA / "fashion-mnist"
    with gzip.open(folder / f"{part}-images-idx3-ubyte.gz") as raw:
        images = np.frombuffer(raw.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz") as raw:
        labels = np.frombuffer(raw.read(), np.uint8, offset=8)
    return images.astype(np.float32) / 255, labels.astype(np.int64)


def faces(name: str) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    """Training and test rows of faces from 0 to 1: four fifths and one fifth, at random."""
    from scipy.io import loadmat

    if name == "cbcl":
        rows, shape = loadmat(DATA / "cbcl-faces" / "CBCL_Face.mat")["M"].T, (19, 19)
    else:
        rows, shape = loadmat(DATA / "olivetti-faces" / "olivettifaces.mat")["faces"].T, (64, 64)
    rows = rows.astype(np.float32) / float(rows.max())
    order = np.random.default_rng(0).permutation(len(rows))
    cut = len(rows) // 5
    return rows[order[cut:]], rows[order[:cut]], shape


def shared(quick: bool) -> dict[str, Any]:
    return {
        "random_state": 0,
        "device": DEVICE,
        "n_threads": int(THREADS),
        **({"max_iter": 2} if quick else {}),
    }


def against_pca(model: Any, train: np.ndarray, test: np.ndarray) -> dict[str, Any]:
    """Test error per image (the squared distance) of the model and of PCA at equal k, both fitted
    to all training rows."""
    from eckart import PCA

    begin = time.perf_counter()
    model.fit(train)
    seconds = time.perf_counter() - begin
    linear = PCA(model.n_components, random_state=0).fit(train)
    ours, best = 2 * model.reconstruction_error(test), 2 * linear.reconstruction_error(test)
    return {
        "seconds": round(seconds, 1),
        "error": round(ours, 4),
        "PCA": round(best, 4),
        "ratio": round(ours / best, 4),
        "epochs": model.n_iter_,
        "layers": model.fit_.plan["layers"],
        "device": model.fit_.plan["device"],
        "certificate": model.certificate_.holds,
        "gradient / noise": round(model.certificate_["gradient / noise"], 4),
    }


def linear(quick: bool) -> dict[str, Any]:
    """The largest principal angle between the decoder of a linear autoencoder and the exact PCA
    subspace, on digits."""
    from sklearn.datasets import load_digits

    from eckart import PCA, Autoencoder, principal_angles

    x = load_digits().data
    options = {
        "hidden": [],
        "batch_size": len(x),
        "validation_fraction": 0,
        "tol": 0.0,
        "patience": 10**6,
    }
    options |= {
        **shared(quick),
        "max_iter": 20 if quick else 1500,
        "learning_rate": 0.02,
        "precision": "float64",
    }
    begin = time.perf_counter()
    model = Autoencoder(8, **options).fit(x)
    seconds, best = time.perf_counter() - begin, PCA(8).fit(x)
    angle = principal_angles(
        model.fit_.factors.weights["decoder.0.weight"], best.components_.T
    ).max()
    risk = model.reconstruction_error(x) / best.reconstruction_error(x)
    return {"seconds": round(seconds, 1), "angle": float(angle), "ratio": risk}


def maps(quick: bool) -> dict[str, Any]:
    """Accuracy of 10 nearest neighbours on two codes, beside two principal components."""
    from sklearn.neighbors import KNeighborsClassifier

    from eckart import PCA, Autoencoder

    (x, y), (test, y_test) = fashion("train"), fashion("t10k")
    model = Autoencoder(2, hidden=[512, 256], **{"max_iter": 15, **shared(quick)})
    found = against_pca(model, x, test)
    for name, fitted in (("accuracy", model), ("PCA accuracy", PCA(2, random_state=0).fit(x))):
        neighbours = KNeighborsClassifier(10).fit(fitted.transform(x), y)
        found[name] = round(float(neighbours.score(fitted.transform(test), y_test)), 4)
    return found | {"accuracy ratio": round(found["accuracy"] / found["PCA accuracy"], 3)}


def classes(quick: bool) -> dict[str, Any]:
    """Test accuracy of the default CNN."""
    from eckart import NetworkClassifier

    (x, y), (test, y_test) = fashion("train"), fashion("t10k")
    options = {"max_iter": 12, "batch_size": 128, **shared(quick)}
    begin = time.perf_counter()
    model = NetworkClassifier(image=(28, 28), dropout=0.25, **options).fit(x, y)
    seconds = time.perf_counter() - begin
    c = model.certificate_
    return {
        "seconds": round(seconds, 1),
        "accuracy": round(float(model.score(test, y_test)), 4),
        "held-out accuracy": round(c["accuracy"], 4),
        "epochs": model.n_iter_,
        "layers": model.fit_.plan["layers"],
        "device": model.fit_.plan["device"],
        "certificate": c.holds,
        "gradient / noise": round(c["gradient / noise"], 4),
    }


def by_default(name: str, quick: bool) -> dict[str, Any]:
    """Test accuracy and processor seconds of the default network for classes, of a plain loop with
    the same layers, batches and epochs (Adam, a constant rate), and of scikit-learn's; on 4,000
    rows of a table, of which a fifth is only judged by."""
    import torch
    from sklearn.neural_network import MLPClassifier
    from torch import nn

    from eckart import NetworkClassifier

    sys.path.insert(0, str(DATA.parent / "tools"))
    from tables import load

    table = load(name)
    order = np.random.default_rng(0).permutation(len(table["data"]))[: 1000 if quick else 4000]
    x = np.asarray(table["data"], np.float32).reshape(len(table["data"]), -1)[order]
    y = np.unique(table["target"], return_inverse=True)[1][order]
    cut = len(x) // 5
    spread = x[cut:].std(0)
    scaled = (x - x[cut:].mean(0)) / np.where(spread > 0, spread, 1)
    # PyTorch loads a second's worth of its own for the first optimiser of a process
    NetworkClassifier(random_state=0, n_threads=1, max_iter=1).fit(x[cut:], y[cut:])
    begin = time.process_time()
    model = NetworkClassifier(random_state=0, n_threads=1).fit(x[cut:], y[cut:])
    found = {
        "accuracy": round(float(model.score(x[:cut], y[:cut])), 4),
        "seconds": round(time.process_time() - begin, 2),
    }
    torch.manual_seed(0)
    torch.set_num_threads(1)
    sizes = [int(w) for w in model.fit_.plan["layers"].split("-")]
    layers: list[Any] = [
        part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())
    ][:-1]
    net, rows, labels = (
        nn.Sequential(*layers),
        torch.as_tensor(scaled[cut:]),
        torch.as_tensor(y[cut:]),
    )
    adam, begin = torch.optim.Adam(net.parameters(), 1e-3), time.process_time()
    for _ in range(model.n_iter_):
        for at in torch.randperm(len(rows)).split(model.fit_.plan["batch_size"]):
            adam.zero_grad()
            nn.functional.cross_entropy(net(rows[at]), labels[at]).backward()
            adam.step()
    right = net(torch.as_tensor(scaled[:cut])).argmax(1).numpy() == y[:cut]
    found |= {
        "plain loop": round(float(right.mean()), 4),
        "its seconds": round(time.process_time() - begin, 2),
    }
    begin = time.process_time()
    rival = MLPClassifier(random_state=0).fit(scaled[cut:], y[cut:])
    score = round(float(rival.score(scaled[:cut], y[:cut])), 4)
    return found | {
        "ratio of seconds": round(found["seconds"] / found["its seconds"], 2),
        "scikit-learn": score,
        "scikit-learn seconds": round(time.process_time() - begin, 1),
        "epochs": model.n_iter_,
    }


def speed(contender: str, quick: bool) -> dict[str, Any]:
    """Images a second of the default networks at batch 4096, training, after one epoch of
    compilation."""
    import eckart

    rows = 4096 * (4 if quick else 60)
    x = np.random.default_rng(0).random((rows, 784), np.float32)
    options = {
        "batch_size": 4096,
        "validation_fraction": 0,
        "random_state": 0,
        "device": DEVICE,
        "schedule": "constant",
    }
    more = {"image": (28, 28)} if contender == "ConvAutoencoder" else {"hidden": [1024, 512]}
    model = getattr(eckart, contender)(
        30, compile=True, max_iter=8, tol=0.0, patience=100, **more, **options
    ).fit(x)
    seconds = np.diff(model.fit_.trace.seconds)
    return {
        "images a second": int(rows / np.median(seconds)),
        "batch": 4096,
        "device": model.fit_.plan["device"],
    }


def plain(quick: bool) -> dict[str, Any]:
    """The dense network of ``speed`` in a loop as one writes it by hand: rows on the device,
    bfloat16, fused Adam, compiled with recorded products."""
    import torch
    from torch import nn

    batch, count = 4096, 4 if quick else 60
    rows = torch.as_tensor(np.random.default_rng(0).random((batch * count, 784), np.float32)).to(
        DEVICE
    )
    sizes, layers = [784, 1024, 512, 30, 512, 1024, 784], []
    for i, (a, b) in enumerate(itertools.pairwise(sizes)):
        layers += [nn.Linear(a, b)] + ([nn.ReLU()] if i not in (2, 5) else [])
    net = nn.Sequential(*layers).to(DEVICE)
    adam = torch.optim.Adam(net.parameters(), 1e-3, fused=True)

    def loss(x: Any) -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            out = net(x)
        return 0.5 * ((out.float() - x) ** 2).mean()

    step, seconds = torch.compile(loss, mode="reduce-overhead"), []
    for _ in range(8):
        torch.cuda.synchronize()
        begin, order = time.perf_counter(), torch.randperm(len(rows), device=DEVICE)
        for i in range(count):
            adam.zero_grad(set_to_none=True)
            step(rows[order[i * batch : (i + 1) * batch]]).backward()
            adam.step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return {
        "images a second": int(len(rows) / np.median(seconds[1:])),
        "batch": batch,
        "device": "cuda, by hand",
    }


def peak(quick: bool) -> dict[str, Any]:
    """Share of the measured rate of bfloat16 matrix products that the training of a wide dense
    network reaches."""
    import torch

    from eckart import Autoencoder

    a = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)
    for _ in range(3):
        a @ a
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(20):
        a @ a
    torch.cuda.synchronize()
    top = 20 * 2 * 8192**3 / (time.perf_counter() - begin)
    width, n, rows, batch = 8192, 4096, 4096 * (4 if quick else 12), 4096
    x = np.random.default_rng(0).random((rows, n), np.float32)
    options = {
        "batch_size": batch,
        "validation_fraction": 0,
        "random_state": 0,
        "device": DEVICE,
        "schedule": "constant",
    }
    model = Autoencoder(
        1024, hidden=[width, width], compile=True, max_iter=6, tol=0.0, patience=100, **options
    ).fit(x)
    seconds = float(np.median(np.diff(model.fit_.trace.seconds)))
    weights = 2 * (n * width + width * width + width * 1024)
    rate = 6 * weights * rows / seconds
    return {
        "TFLOP/s": round(rate / 1e12, 1),
        "product TFLOP/s": round(top / 1e12, 1),
        "share": round(rate / top, 3),
    }


def work(task: str, contender: str, quick: bool) -> dict[str, Any]:
    """One case."""
    import eckart

    if task in ("speed", "peak"):
        if DEVICE == "cpu":
            return {"skipped": "measured on a GPU only: set BENCH_DEVICE=cuda"}
        if contender == "plain loop":
            return plain(quick)
        return speed(contender, quick) if task == "speed" else peak(quick)
    if task == "linear k=8":
        return linear(quick)
    if not DATA.is_dir():
        return {"skipped": f"{DATA.name} is not on this machine; set ECKART_DATA"}
    if task == "by default":
        return by_default(contender, quick)
    if task.split()[0] in ("cbcl", "olivetti"):
        train, test, _ = faces(task.split()[0])
        few = (
            {"noise": 1.0, "hidden": [256]}
            if task.startswith("olivetti")
            else {"noise": 0.3, "hidden": [512, 256]}
        )
        return against_pca(eckart.Autoencoder(20, init="pca", **few, **shared(quick)), train, test)
    if task == "fashion k=2":
        return maps(quick)
    if task == "fashion classes":
        return classes(quick)
    train, test = fashion("train")[0], fashion("t10k")[0]
    epochs = {"max_iter": 20 if DEVICE == "cpu" else 60}
    return against_pca(getattr(eckart, contender)(30, **{**epochs, **shared(quick)}), train, test)


def report(rows: list[dict]) -> None:
    """One line a case."""
    for row in rows:
        rest = ", ".join(f"{k} {v}" for k, v in row.items() if k not in ("task", "contender"))
        print(f"{row['task']:<18} {row['contender']:<20} {rest}")


if __name__ == "__main__":
    run(__file__, CASES, work, report)
