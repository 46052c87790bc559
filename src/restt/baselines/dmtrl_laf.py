"""DMTRL-LAF: multi-task networks tied by the factorisation "laf"; see :mod:`restt.baselines.dmtrl`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from restt.baselines.dmtrl import DMTRLClassifier

TASKS = ("classification",)


@dataclass(kw_only=True, eq=False, repr=False)
class DMTRLLAFClassifier(DMTRLClassifier):
    """:class:`DMTRLClassifier` by default with ``factorisation="laf"``."""

    factorisation: str = "laf"


def make(task: str, **params: Any) -> DMTRLLAFClassifier:
    """The estimator, for square images.

    >>> make("classification").factorisation
    'laf'
    """
    return DMTRLLAFClassifier(**params)
