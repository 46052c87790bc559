"""The contraction of the chain, the one hot loop of restt."""

from restt.chain.dispatch import BACKENDS, backend, choose, contract
from restt.chain.explain import explain
from restt.chain.precision import precision
from restt.chain.recompute import recompute
from restt.chain.weights import ChainWeights

__all__ = ["BACKENDS", "ChainWeights", "backend", "choose", "contract", "explain", "precision", "recompute"]
