"""Exact explanations: interactions by order, Shapley values, Sobol indices, effects, terms."""

from restt.explain.distillation import Distilled, distil
from restt.explain.effects import Effect, effect
from restt.explain.expansion import Polynomial, interaction, order_spectrum, polynomial
from restt.explain.global_explanation import GlobalExplanation, explain_global
from restt.explain.local_explanation import LocalExplanation, explain_local
from restt.explain.pruning import Pruned, prune
from restt.explain.shapley import interaction_index, shapley_values
from restt.explain.shares import VarianceShares, variance_shares
from restt.explain.sobol import SobolIndices, Term, TopInteractions, sobol_indices, top_interactions
from restt.explain.trees import Trees, from_trees

__all__ = [
    "Distilled",
    "Effect",
    "GlobalExplanation",
    "LocalExplanation",
    "Polynomial",
    "Pruned",
    "SobolIndices",
    "Term",
    "TopInteractions",
    "Trees",
    "VarianceShares",
    "distil",
    "effect",
    "explain_global",
    "explain_local",
    "from_trees",
    "interaction",
    "interaction_index",
    "order_spectrum",
    "polynomial",
    "prune",
    "shapley_values",
    "sobol_indices",
    "top_interactions",
    "variance_shares",
]
