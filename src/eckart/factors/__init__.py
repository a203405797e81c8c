"""What a fit leaves behind: frozen, labelled factors that evaluate themselves."""

from eckart.factors.basis import TIE, Basis, signs
from eckart.factors.components import Components
from eckart.factors.embedding import Embedding
from eckart.factors.item_weights import ItemWeights
from eckart.factors.lowrank import LowRank
from eckart.factors.mixed_columns import MixedColumns
from eckart.factors.network import Network
from eckart.factors.series import Series
from eckart.factors.topics import Topics

Factors = (
    Basis
    | Components
    | Embedding
    | ItemWeights
    | LowRank
    | MixedColumns
    | Network
    | Series
    | Topics
)

__all__ = [
    "TIE",
    "Basis",
    "Components",
    "Embedding",
    "Factors",
    "ItemWeights",
    "LowRank",
    "MixedColumns",
    "Network",
    "Series",
    "Topics",
    "signs",
]
