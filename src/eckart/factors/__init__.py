"""What a fit leaves behind: frozen, labelled factors that evaluate themselves."""

from eckart.factors.basis import TIE, Basis, signs
from eckart.factors.lowrank import LowRank
from eckart.factors.mixture import Mixture
from eckart.factors.topics import Topics

Factors = Basis | LowRank | Mixture | Topics

__all__ = ["TIE", "Basis", "Factors", "LowRank", "Mixture", "Topics", "signs"]
