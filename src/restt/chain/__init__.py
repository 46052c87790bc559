"""The contraction of the chain, the one hot loop of restt."""

from restt.chain.dispatch import BACKENDS, backend, contract
from restt.chain.weights import ChainWeights

__all__ = ["BACKENDS", "ChainWeights", "backend", "contract"]
