"""One chain of the collapsed Gibbs sampler on a device, side by side as on the CPU engine
(``cpu.topics.chain``): all documents at once against the words' counts that the sweep before has
left, the tokens of a document one after the other. Random numbers are the CPU engine's, one for
each token and sweep; counts are whole numbers, whose sums do not depend on their order. Small
corpora, which are sampled token after token, are the CPU engine's.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch

from eckart.engines.cuda.arrays import all_fetched, fetched
from eckart.engines.cuda.held import DeviceMatrix, to_device
from eckart.engines.cuda.kernels import usable
from eckart.engines.cuda.kernels.gibbs import gibbs_swept
from eckart.engines.protocol.topics import TopicDraw, spacing
from eckart.loading import lazy

chains = lazy("eckart.engines.cpu.topics.gibbs")
MANY = 2**22
"""Tokens whose counts are changed, or topics drawn, at once: some numbers of 8 bytes each."""


class DeviceChains:
    """Chains over whole counts."""

    device: torch.device
    tensor: Any
    held: Any
    on_cpu: Any

    def topic_chain(self, x: Any, words: Any, shares: Any, prior: Any, seed: int) -> Any:
        x = self.held(x)
        if "tokens" not in x.kept:
            x.kept["tokens"] = float(x.entries.data.double().sum())
        if x.kept["tokens"] < chains.EXACT_TOKENS or not x.kept["tokens"]:
            return self.on_cpu("topic_chain", x, words, shares, prior, seed)
        theta = self.tensor(shares if hasattr(shares, "tensor") else np.asarray(shares), np.float32)
        return DeviceChain(x, self.tensor(words, np.float32), theta, prior, seed)


class DeviceChain:
    """A topic for each token, and the counts that follow from them (see
    ``protocol.topics.Chain``)."""

    def __init__(
        self, x: DeviceMatrix, words: torch.Tensor, shares: torch.Tensor, prior: Any, seed: int
    ):
        e, self.device = x.entries, x.device
        counts = e.data.long()
        self.n, self.k = words.shape
        self.seed, self.sweeps, self.averaged = seed, 0, 0
        starts = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
        self.begins = starts[e.indptr]
        lengths: np.ndarray = self.begins.diff().cpu().numpy()
        self.tokens = int(lengths.sum())
        by_length = np.argsort(-lengths, kind="stable")
        self.lengths, self.order = lengths[by_length], torch.from_numpy(by_length).to(self.device)
        self.words = torch.repeat_interleave(e.indices, counts, output_size=self.tokens).int()
        self.mean = torch.zeros((self.n, self.k), dtype=torch.int64, device=self.device)
        self.set_prior(prior)
        self.topics = self._start_topics(words, shares)
        self.table = self._tally(self.topics)

    def _start_topics(self, words: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        """Topics drawn from theta_dz phi_wz alone."""
        out, draws = torch.empty_like(self.words), self._draws()
        step = max(1, MANY // self.k)
        for a in range(0, self.tokens, step):
            part = slice(a, a + step)
            tokens = torch.arange(a, min(self.tokens, a + step), device=self.device)
            theta = (
                shares
                if shares.ndim == 1
                else shares[torch.searchsorted(self.begins, tokens, right=True) - 1]
            )
            weight = theta * words[self.words[part].long()]
            out[part] = self._found(
                weight, draws[part] * weight.sum(1), torch.zeros_like(out[part])
            )
        return out

    def set_prior(self, prior: Any) -> None:
        self.prior = to_device(np.atleast_1d(np.asarray(prior, np.float32)), self.device)

    def sweep(self, alpha: np.ndarray, average: bool = False) -> float:
        self.sweeps += 1
        a = to_device(np.asarray(alpha, np.float32), self.device)
        sizes = self.table.sum(0).double() + self.prior.double().sum(0) * (
            1 if self.prior.ndim == 2 else self.n
        )
        inverse = torch.where(sizes > 0, 1 / sizes, 0.0).float()
        numbers = inverse, (1 / (sizes - 1)).float(), a
        table, whole = self.table.float() + self.prior, float(np.asarray(alpha, np.float32).sum())
        if usable(table):
            new, values = gibbs_swept(
                self.order,
                self.begins,
                self.words,
                self.topics,
                table,
                numbers,
                self._draws(),
                whole,
            )
            value = values.sum()
        else:
            new, value = self._by_steps(table, numbers, whole)
        self._move(new)
        if average:
            self.mean += self.table
        self.averaged += average
        return float(value)

    def _by_steps(
        self, table: torch.Tensor, numbers: tuple[torch.Tensor, ...], whole: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The same without a kernel: the first token of all documents, then the second, and so
        on."""
        inverse, lone, alpha = numbers
        draws, new = self._draws(), self.topics.clone()
        begins = self.begins[:-1][self.order]
        here = self._document_counts(self.order).float() + alpha
        lengths = self.begins.diff().double()
        value = -(lengths * (lengths - 1 + whole).clamp(min=1e-30).log()).sum()
        for s in range(int(self.lengths[0])):
            # documents with more than s tokens
            going = int(np.searchsorted(-self.lengths, -s, side="left"))
            at, own_here = begins[:going] + s, here[:going]
            old, row = self.topics[at].long()[:, None], table[self.words[at].long()]
            own = ((own_here.gather(1, old) - 1) * (row.gather(1, old) - 1) * lone[old])[:, 0]
            weight = (own_here * row * inverse).scatter(1, old, 0.0)
            total = weight.sum(1) + own
            rest = draws[at] * total - own
            found = torch.where(rest < 0, old[:, 0], self._found(weight, rest, old[:, 0]).long())
            change = (torch.arange(self.k, device=self.device) == found[:, None]).float()
            here[:going] = (own_here + change).scatter(
                1, old, (own_here + change).gather(1, old) - 1
            )
            new[at] = found.int()
            value = value + total.double().clamp(min=1e-300).log().sum()
        return new, value

    def _found(self, weight: torch.Tensor, rest: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
        """The first z at which the running sum of weights passes ``rest``; ``old`` where all
        weights are 0. Sums that run are a product, in a fixed order."""
        columns = torch.arange(self.k, device=self.device)
        running = weight @ self._triangle
        new = torch.where((running > rest[:, None]) & (weight > 0), columns, self.k).amin(1)
        last = torch.where(weight > 0, columns, -1).amax(1)
        return torch.where(new < self.k, new, torch.where(last >= 0, last, old)).int()

    @cached_property
    def _triangle(self) -> torch.Tensor:
        return torch.ones((self.k, self.k), device=self.device).triu()

    def _move(self, new: torch.Tensor) -> None:
        """Tokens to their new topics, and the words' counts with them."""
        flat = self.table.view(-1)
        for a in range(0, self.tokens, MANY):
            part = slice(a, a + MANY)
            row, changed = self.words[part].long() * self.k, (new[part] != self.topics[part]).int()
            flat.index_add_(0, row + self.topics[part], -changed)
            flat.index_add_(0, row + new[part], changed)
        self.topics = new

    def _tally(self, topics: torch.Tensor) -> torch.Tensor:
        """n_wz, words x k."""
        out = torch.zeros(self.n * self.k, dtype=torch.int32, device=self.device)
        for a in range(0, self.tokens, MANY):
            own = topics[a : a + MANY]
            out.index_add_(0, self.words[a : a + MANY].long() * self.k + own, torch.ones_like(own))
        return out.view(self.n, self.k)

    def _document_counts(self, documents: torch.Tensor) -> torch.Tensor:
        """n_dz of some documents."""
        row = torch.full((len(self.begins) - 1,), -1, dtype=torch.int64, device=self.device)
        row[documents] = torch.arange(len(documents), device=self.device)
        out = torch.zeros(len(documents) * self.k + 1, dtype=torch.int32, device=self.device)
        for a in range(0, self.tokens, MANY):
            own = self.topics[a : a + MANY]
            tokens = torch.arange(a, a + len(own), device=self.device)
            at = row[torch.searchsorted(self.begins, tokens, right=True) - 1]
            out.index_add_(
                0, torch.where(at < 0, len(out) - 1, at * self.k + own), torch.ones_like(own)
            )
        return out[:-1].view(len(documents), self.k)

    def counts(self) -> np.ndarray:
        return fetched(self.table.float())

    def mean_counts(self) -> np.ndarray:
        return (
            fetched((self.mean.double() / self.averaged).float())
            if self.averaged
            else self.counts()
        )

    def draw(self, documents: int, words: int) -> TopicDraw:
        some = torch.arange(
            0, len(self.begins) - 1, spacing(len(self.begins) - 1, documents), device=self.device
        )
        own, few, sizes = all_fetched(
            self._document_counts(some), self.table[:: spacing(self.n, words)], self.table.sum(0)
        )
        return TopicDraw(own, few, self.n, sizes)

    def state(self) -> dict[str, Any]:
        arrays = {
            "topics": fetched(self.topics.long()),
            "prior": fetched(self.prior),
            "mean": fetched(self.mean),
        }
        return {"seed": self.seed, "sweeps": self.sweeps, "averaged": self.averaged, **arrays}

    def restore(self, state: dict[str, Any]) -> None:
        self.seed, self.sweeps, self.averaged = (
            int(state[name]) for name in ("seed", "sweeps", "averaged")
        )
        self.topics = to_device(state["topics"], self.device).int()
        self.mean = to_device(state["mean"], self.device)
        self.set_prior(state["prior"])
        self.table = self._tally(self.topics)

    def _draws(self) -> torch.Tensor:
        """A number in (0, 1) for each token of this sweep, from a counter, by two rounds of
        multiply and shift: those of ``cpu.topics.gibbs.uniform``."""
        seed = (self.seed * 0x2545F4914F6CDD1D + self.sweeps * 0xD1342543DE82EF95) % 2**64
        out = torch.empty(self.tokens, dtype=torch.float32, device=self.device)
        for a in range(0, self.tokens, MANY):
            b = min(self.tokens, a + MANY)
            x = torch.arange(a, b, device=self.device) * _signed(0x9E3779B97F4A7C15) + _signed(seed)
            x = (x ^ _shifted(x, 30)) * _signed(0xBF58476D1CE4E5B9)
            x = (x ^ _shifted(x, 27)) * _signed(0x94D049BB133111EB)
            x = x ^ _shifted(x, 31)
            out[a:b] = (_shifted(x, 41).float() + 0.5) * (1.0 / 8388608.0)
        return out


def _signed(word: int) -> int:
    """64 bits as PyTorch has them."""
    return word - 2**64 if word >= 2**63 else word


def _shifted(x: torch.Tensor, places: int) -> torch.Tensor:
    """x >> places with zeros from the left."""
    return (x >> places) & (2 ** (64 - places) - 1)
