import numpy as np
import pandas as pd
import pytest

from restt_app.workflow import fit_table
from restt_app.workflow.target import leaks

pytestmark = pytest.mark.usefixtures("little_scoring")


def named(notes):
    return [note.split("'")[1] for note in notes]


def test_a_leak_is_found_whatever_its_form_and_nothing_else_is():
    rng = np.random.default_rng(0)
    y = rng.normal(size=300)
    frame = pd.DataFrame(
        {
            "exponential": np.exp(-y),
            "scaled": 3 * y + 1,
            "rounded": y.round(3),
            "close": y + 0.1 * rng.normal(size=300),
            "noise": rng.normal(size=300),
            "level": pd.Categorical(rng.choice(list("abc"), 300)),
        }
    )
    assert named(leaks(frame, y, None, "y")) == ["exponential", "scaled", "rounded"]


@pytest.mark.parametrize("kinds", [2, 3])
def test_a_leak_of_classes(kinds):
    rng = np.random.default_rng(0)
    y = rng.choice(list("abc")[:kinds], 200).astype(object)
    codes = np.searchsorted(list("abc"), y.astype(str))
    frame = pd.DataFrame(
        {
            "code": pd.Categorical(codes.astype(str)),
            "number": codes + 0.2 * rng.random(200),
            "folded": np.abs(codes - 1.0) + 0.01 * rng.random(200),
            "missing": np.where(codes == 0, np.nan, rng.random(200)),
            "noise": rng.random(200),
        }
    )
    expected = ["code", "number", "folded", "missing"] if kinds == 2 else ["code", "number"]
    assert named(leaks(frame, y, np.unique(y), "y")) == expected


def test_what_is_noticed_is_said_before_the_fit():
    rng = np.random.default_rng(0)
    y = rng.normal(size=60)
    data = pd.DataFrame(
        {
            "when": pd.date_range("2024-01-01", periods=60),
            "customer_id": np.repeat(np.arange(1000, 1020), 3),
            "a": rng.normal(size=60),
            "paid": 2 * y,
            "y": y,
        }
    )
    told = []

    def progress(*_):
        told.append("fitting")

    card = fit_table(data, "y", effort="quick", notice=told.append, progress=progress).card
    before = told[: told.index("fitting")]
    for words in ("column 'paid' alone predicts 'y'", "rows are sorted by 'when'", "share a value of 'customer_id'"):
        assert sum(words in note for note in before) == 1
        assert sum(words in note for note in card.notes) == 1


def test_few_positives_are_called_imbalanced():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"a": rng.normal(size=140), "y": [*["yes"] * 5, *["no"] * 135]})
    notes = fit_table(data, "y", effort="quick").card.notes
    assert any("imbalanced: 'no' is in 96.4 % of the rows, 'yes' in 3.6 %" in note for note in notes)
    even = fit_table(data.assign(y=["yes", "no"] * 70), "y", effort="quick").card.notes
    assert not any("imbalanced" in note for note in even)
