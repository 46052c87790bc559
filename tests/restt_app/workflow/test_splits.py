import numpy as np
import pandas as pd
import pytest

from restt_app.workflow import fit_table
from restt_app.workflow.scoring import ScoringSettings, group_codes, split_rows


def visits(rows=80, seed=0):
    """Rows of twenty people: what a person has is the same in each of their rows, and the rest is noise."""
    rng = np.random.default_rng(seed)
    person = rng.integers(20, size=rows)
    traits = rng.normal(size=(20, 2))
    frame = pd.DataFrame(traits[person], columns=["height", "weight"])
    return frame.assign(person_id=person, y=rng.normal(size=20)[person] + 0.01 * rng.normal(size=rows))


@pytest.mark.parametrize("rows", [80, 700])
@pytest.mark.parametrize("labels", [True, False])
def test_no_group_is_on_both_sides_and_every_small_table_is_scored_whole(rows, labels):
    rng = np.random.default_rng(0)
    groups = group_codes(rng.choice(list("abcdefghijkl"), rows).astype(object))
    y = rng.integers(2, size=rows)
    splits, method = split_rows(y, y if labels else None, 0, ScoringSettings(), groups=groups)
    for kept, held in splits:
        assert not set(groups[kept]) & set(groups[held])
    if rows == 80:
        assert sorted(np.concatenate([held for _, held in splits])) == list(range(80))
        assert method == "5 folds of whole groups, 12 in all"


def test_rows_without_a_group_stand_alone():
    assert len(set(group_codes(np.array(["a", None, "a", None], dtype=object)))) == 3


def test_what_comes_later_is_predicted_from_what_came_before_and_equal_times_stay_together():
    times = np.repeat(np.arange(20.0), 5)[::-1]
    [(kept, held)], method = split_rows(np.zeros(100), None, 0, ScoringSettings(), times=times)
    assert times[kept].max() < times[held].min()
    assert (len(kept), len(held), method) == (80, 20, "the latest 20 % of the rows")


def test_scores_on_new_people_are_not_those_on_known_ones():
    data = visits()
    known = fit_table(data, "y", effort="quick", drop=["person_id"]).card
    new = fit_table(data, "y", effort="quick", group="person_id").card
    assert known.held_out["metrics"]["r2"] > 0.5 > new.held_out["metrics"]["r2"]
    assert new.settings["group"] == "person_id"
    left_out = next(column for column in new.columns if column["name"] == "person_id")
    assert left_out["note"] == "left out: names the groups"


def test_a_table_of_its_own_is_scored_on_and_not_fitted_to(tmp_path):
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"a": rng.normal(size=60), "k": rng.choice(["u", "v"], 60)})
    data["y"] = data.a + (data.k == "u")
    data[40:].assign(k=["u", "new"] * 10).to_csv(tmp_path / "test.csv", index=False)
    card = fit_table(data[:40], "y", effort="quick", test=tmp_path / "test.csv").card
    assert card.held_out["method"] == "a table of their own"
    assert (card.held_out["rows"], card.held_out["trained_on"], card.source["rows_used"]) == (20, 40, 40)
    observed = sorted(row["observed"] for row in card.calibration["rows"])
    assert observed == pytest.approx(sorted(data.y[40:]))
    with pytest.raises(ValueError, match="test: the table lacks the target 'y'"):
        fit_table(data[:40], "y", test=data[40:].drop(columns="y"))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"group": "y"}, "at most one of group, time and test"),
        ({"group": "person_id", "time": "height"}, "at most one of group, time and test"),
        ({"group": "nobody"}, "group names the column 'nobody', which is not there"),
        ({"time": "word"}, "time must name a column of dates or numbers, and 'word' holds categories"),
        ({"time": "gap"}, "time must be there in every row, and 'gap' is missing in row 2"),
        ({"group": "height", "drop": ["height"]}, "drop names the group 'height'"),
    ],
)
def test_splits_that_cannot_be_made_are_named(options, expected):
    data = visits().assign(word=list("ab") * 40, gap=[1.0, np.nan, *range(78)])
    with pytest.raises(ValueError, match=expected):
        fit_table(data, "y", **options)
