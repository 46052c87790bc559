"""Exact explanations: interactions by order, Shapley values, Sobol indices, effects, terms."""

from restt.explain.orders import interaction, order_spectrum
from restt.explain.shapley import interaction_index, shapley_values

__all__ = ["interaction", "interaction_index", "order_spectrum", "shapley_values"]
