"""The contraction of the chain, the one hot loop of restt."""

from restt.chain.dispatch import BACKENDS, backend, choose, contract, explain
from restt.chain.precision import precision
from restt.chain.reference import ChainWeights

__all__ = ["BACKENDS", "ChainWeights", "backend", "choose", "contract", "explain", "precision"]
