"""DMTRL-TT: multi-task networks tied by the factorisation "tt"; see :mod:`restt.baselines.dmtrl`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from restt.baselines.dmtrl import DMTRLClassifier

TASKS = ("classification",)


@dataclass(kw_only=True, eq=False, repr=False)
class DMTRLTTClassifier(DMTRLClassifier):
    """:class:`DMTRLClassifier` by default with ``factorisation="tt"``."""

    factorisation: str = "tt"


def make(task: str, **params: Any) -> DMTRLTTClassifier:
    """The estimator, for square images.

    >>> make("classification").factorisation
    'tt'
    """
    return DMTRLTTClassifier(**params)
