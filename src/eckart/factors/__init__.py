"""What a fit leaves behind: frozen, labelled factors that evaluate themselves."""

from eckart.factors.basis import TIE, Basis, signs
from eckart.factors.embedding import Embedding
from eckart.factors.lowrank import LowRank
from eckart.factors.mixture import Mixture
from eckart.factors.network import Network
from eckart.factors.topics import Topics

Factors = Basis | Embedding | LowRank | Mixture | Network | Topics

__all__ = ["TIE", "Basis", "Embedding", "Factors", "LowRank", "Mixture", "Network", "Topics", "signs"]
