"""The default solvers in a hurry, for tests of how a model is made and handled rather than of how good it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def hasty_solvers() -> Iterator[None]:
    """Every part of the posterior and of the selection, none for long: short searches and trainings, few penalties."""
    from restt.estimators import additive, candidates, modes, selection
    from restt.prior import Settings, classes, learning

    climb = learning.climb

    def climb_a_little(objective: Any, start: Any, iterations: int, *rest: Any) -> Any:
        return climb(objective, start, min(iterations, 3), *rest)

    with pytest.MonkeyPatch.context() as patch:
        hasty = Settings(knots=12, first_iterations=2, iterations=2, last_iterations=2, largest_bond=16)
        patch.setattr(Settings, "of_effort", lambda effort: hasty)
        patch.setattr(learning, "climb", climb_a_little)
        patch.setattr(classes, "_ITERATIONS", 10)
        for module in (candidates, selection):
            patch.setattr(module, "STEPS", 20)
            patch.setattr(module, "FOLDS", 3)
        patch.setattr(modes, "MODE_PENALTIES", modes.MODE_PENALTIES[1::3])
        patch.setattr(additive, "LOGISTIC_PENALTIES", additive.LOGISTIC_PENALTIES[1::3])
        yield
