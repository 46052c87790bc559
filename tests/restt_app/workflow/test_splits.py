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
    assert group_codes(np.array(["a", None, "b", "a", None], dtype=object)).tolist() == [0, 2, 1, 0, 3]
    assert group_codes(np.array([None, None], dtype=object)).tolist() == [1, 2]


def test_what_comes_later_is_predicted_from_what_came_before_and_equal_times_stay_together():
    times = np.repeat(np.arange(20.0), 5)[::-1]
    [(kept, held)], method = split_rows(np.zeros(100), None, 0, ScoringSettings(), times=times)
    assert times[kept].max() < times[held].min()
    assert (len(kept), len(held), method) == (80, 20, "the latest 20 % of the rows")
    few = ScoringSettings(most_trained=7, most_held=2)
    [(kept, held)], method = split_rows(np.zeros(100), None, 0, few, times=times)
    assert (sorted(times[kept]), times[held].tolist()) == ([17] * 2 + [18] * 5, [19] * 5)  # the latest of each
    assert method == "the latest 5 % of the rows"
    [(kept, held)], _ = split_rows(np.zeros(3), None, 0, ScoringSettings(), times=np.array([2.0, 0.0, 1.0]))
    assert (kept.tolist(), held.tolist()) == ([1, 2], [0])
    with pytest.raises(ValueError, match="time must have different values"):
        split_rows(np.zeros(2), None, 0, ScoringSettings(), times=np.arange(2.0))


@pytest.mark.parametrize(("rows", "method"), [(9, "3 folds"), (10, "20 % of the rows"), (30, "13 % of the rows")])
def test_from_many_rows_on_one_part_is_held_out(rows, method):
    settings = ScoringSettings(folds=3, fold_rows=10, most_held=4, most_trained=20)
    splits, words = split_rows(np.arange(rows), None, 0, settings)
    assert words == method
    sizes = {9: [(6, 3)] * 3, 10: [(8, 2)], 30: [(20, 4)]}[rows]
    assert [(len(kept), len(held)) for kept, held in splits] == sizes


def test_classes_are_spread_evenly_where_one_has_a_row_for_each_fold():
    labels = np.array([*"aaabbb"])
    splits, _ = split_rows(labels, labels, 0, ScoringSettings(folds=3))
    assert [sorted(labels[held]) for _, held in splits] == [["a", "b"]] * 3
    # Where none has, folds cannot be spread by class, and are made all the same.
    few = np.array([*"aabbcc"])
    assert len(split_rows(few, few, 0, ScoringSettings(folds=3))[0]) == 3


def test_groups_have_to_be_two_and_leave_two_classes():
    y, settings = np.arange(12), ScoringSettings(fold_rows=12, most_trained=4, most_held=3)
    [(kept, held)], method = split_rows(y, None, 0, settings, groups=y // 4)
    assert (len(kept), len(held), method) == (4, 3, "whole groups, 33 % of the rows")
    splits, method = split_rows(y, None, 0, ScoringSettings(), groups=y // 6)
    assert (len(splits), method) == (2, "2 folds of whole groups, 2 in all")
    with pytest.raises(ValueError, match="group must have at least two different values, got 1"):
        split_rows(y, None, 0, settings, groups=np.zeros(12))
    with pytest.raises(ValueError, match="each class is in one group"):
        split_rows(y, y // 6, 0, settings, groups=y // 6)


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
