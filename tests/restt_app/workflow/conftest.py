import numpy as np
import pandas as pd
import pytest

from restt_app.workflow import fit_table, fitting, scoring
from restt_app.workflow.scoring import ScoringSettings
from tests.hasty import hasty_solvers


def trees(rows: int, seed: int = 0) -> pd.DataFrame:
    """Heights from numbers, a category, a date and a yes or no; a number and a category have gaps."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "girth": rng.uniform(1, 5, rows).round(3),
            "kind": rng.choice(["oak", "fir", "elm"], rows),
            "planted": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, rows), unit="D"),
            "watered": rng.choice([True, False], rows),
        }
    )
    frame["height"] = (3 * frame.girth + 2 * (frame.kind == "fir") * frame.girth + rng.normal(0, 0.1, rows)).round(4)
    frame.loc[::13, "girth"] = np.nan
    frame.loc[3::11, "kind"] = None
    return frame


@pytest.fixture(autouse=True)
def _in_a_hurry(hasty):
    """Tests here are of how tables are read and models handled."""


@pytest.fixture
def little_scoring(monkeypatch):
    """Two folds beside what needs no column, for tests of anything but scores."""
    monkeypatch.setattr(fitting, "ScoringSettings", lambda: ScoringSettings(folds=2))
    monkeypatch.setattr(scoring, "BASELINES", {"regression": ("mean",), "classification": ("class shares",)})


@pytest.fixture(scope="session")
def tree_frame():
    return trees(60)


@pytest.fixture(scope="session")
def fitted(tree_frame):
    """Regression."""
    with hasty_solvers():
        return fit_table(tree_frame, "height")


@pytest.fixture(scope="session")
def labelled(tree_frame):
    """Classification."""
    frame = tree_frame.assign(tall=np.where(tree_frame.height > 9, "tall", "small")).drop(columns="height")
    with hasty_solvers():
        return fit_table(frame, "tall", effort="quick")
