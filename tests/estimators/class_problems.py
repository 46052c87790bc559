"""Rows of classes for tests of the candidates."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from restt.estimators import ResTTClassifier
from restt.estimators.class_rows import ClassRows, ClassSettings
from restt.estimators.classes import new_labels


def class_rows(table: np.ndarray, labels: np.ndarray, categories: list[int], settings: ClassSettings) -> ClassRows:
    """Rows of a table (B, C), read as a classifier reads them."""
    model = ResTTClassifier(categorical_features=categories)
    frame = pd.DataFrame({f"c{n}": column for n, column in enumerate(table.T)})
    given = model._read_rows(frame.astype({f"c{n}": int for n in categories}), labels, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClassSettings, "of_effort", lambda effort: settings)
        return ClassRows.read(given, model, new_labels(given.y, given.weights, None), 0)
