"""Pairs of words: counting, mutual information, GloVe, skip-gram and its evidence. Each file deals
work to threads; the kernels beside it load numba."""

from __future__ import annotations

from eckart.engines.cpu.words.counting import PairCounting
from eckart.engines.cpu.words.scores import GloveSteps, PairScores
from eckart.engines.cpu.words.windows import WindowSteps


class WordPrimitives(PairCounting, GloveSteps, PairScores, WindowSteps):
    """The family ``protocol.words`` as part of ``CpuEngine``."""
