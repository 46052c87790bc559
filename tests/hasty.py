"""The default solvers in a hurry, for tests of how a model is made and handled rather than of how good it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def hasty_solvers() -> Iterator[None]:
    """Every part of the posterior and of the selection, none for long: short searches and trainings, few penalties."""
    from restt.estimators.class_rows import ClassSettings
    from restt.prior import Settings

    with pytest.MonkeyPatch.context() as patch:
        hasty = Settings(
            fewest_knots=12, most_knots=12, first_iterations=2, iterations=2, last_iterations=2, largest_bond=16
        )
        patch.setattr(Settings, "of_effort", lambda effort: hasty)
        few = ClassSettings(
            folds=3,
            first_iterations=1,
            iterations=3,
            penalties=(1 / 8, 1 / 512),
            mode_iterations=10,
            train_steps=20,
            refining_steps=5,
            train_penalties=(0.003, 0.0005),
        )
        patch.setattr(ClassSettings, "of_effort", lambda effort: few)
        yield
