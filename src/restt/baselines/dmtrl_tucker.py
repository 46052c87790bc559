"""DMTRL-Tucker: multi-task networks tied by the factorisation "tucker"; see :mod:`restt.baselines.dmtrl`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from restt.baselines.dmtrl import DMTRLClassifier

TASKS = ("classification",)


@dataclass(kw_only=True, eq=False, repr=False)
class DMTRLTuckerClassifier(DMTRLClassifier):
    """:class:`DMTRLClassifier` by default with ``factorisation="tucker"``."""

    factorisation: str = "tucker"


def make(task: str, **params: Any) -> DMTRLTuckerClassifier:
    """The estimator, for square images.

    >>> make("classification").factorisation
    'tucker'
    """
    return DMTRLTuckerClassifier(**params)
