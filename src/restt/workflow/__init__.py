"""People's own tables: from a file to a model with a card, from a model to predictions and a page."""

from restt.workflow.card import Card

__all__ = ["Card"]
