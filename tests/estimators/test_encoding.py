import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from restt import features
from restt.estimators import columns
from restt.estimators import encoding as encoding_module
from restt.estimators.columns import _rare_levels, _warn_of_unseen, levels_beside, mean_and_spread
from restt.estimators.encoding import Encoding, fit_encoding
from restt.estimators.tables import Table, frame_table

ONES = np.ones
# What sums of n numbers of size one may differ by, in whatever order they are added: n times this.
ROUNDING = np.finfo(np.float64).eps


def encoded(table, weights=None, **options):
    weights = ONES(table.rows) if weights is None else weights
    encoding = fit_encoding(table, weights, **options)
    return encoding, encoding.vectors(torch.from_numpy(encoding.numbers(table)))


def test_auto_vectors_are_centred_hats():
    table = Table(np.random.default_rng(0).normal(size=(50, 2)))
    encoding, vectors = encoded(table)
    assert vectors.mean(0).abs().max() < 50 * ROUNDING
    raw = features.Hat(8, "quantile").fit(table.columns)(table.columns)
    torch.testing.assert_close(vectors, raw - raw.mean(0), rtol=0, atol=50 * ROUNDING)
    assert encoding.widths == (8, 8)


def test_categories_and_missing_values_have_their_own_states():
    frame = pd.DataFrame({"c": ["b", "a", None, "b"], "x": [1.0, np.nan, 3.0, 1.0]})
    encoding, vectors = encoded(frame_table(frame), feature_map="hat")
    assert encoding.widths == (3, 9)
    assert vectors[:, 0, :3].tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert vectors[1, 1].tolist() == [0] * 8 + [1]
    assert vectors[0, 1, 8] == 0


def test_knots_ignore_missing_rows_and_follow_weights():
    column = np.array([0.0, np.nan, 1.0, 5.0, 5.0, np.nan])
    with_missing = fit_encoding(Table(column[:, None]), ONES(6))
    without = fit_encoding(Table(np.array([[0.0], [1.0], [5.0]])), np.array([1.0, 1.0, 2.0]))
    assert with_missing.feature_map.site_knots == without.feature_map.site_knots == ((0.0, 1.0, 5.0),)


def test_a_weight_of_two_is_two_rows():
    rng = np.random.default_rng(3)
    x, counts = rng.normal(size=(20, 3)), rng.integers(1, 4, 20)
    weighted = fit_encoding(Table(x), counts.astype(float))
    repeated = fit_encoding(Table(x.repeat(counts, axis=0)), ONES(counts.sum()))
    assert weighted.feature_map.site_knots == repeated.feature_map.site_knots
    torch.testing.assert_close(weighted.means, repeated.means, rtol=0, atol=counts.sum() * ROUNDING)


def test_unknown_category_is_the_learned_state_of_rare_ones():
    values = ["a"] * 100 + ["b"] * 100 + ["rare"]
    frame = pd.DataFrame({"c": values})
    encoding, _ = encoded(frame_table(frame), feature_map="hat", handle_unknown="other")
    assert encoding.columns[0].levels == ("a", "b")
    with pytest.warns(UserWarning, match="'new' in row 1"):
        found = encoding.vectors(torch.from_numpy(encoding.numbers(frame_table(pd.DataFrame({"c": ["rare", "new"]})))))
    assert found[:, 0].tolist() == [[0, 0, 1], [0, 0, 1]]


def test_rare_levels_are_light_or_more_than_have_a_state():
    totals = {"a": 60.0, "b": 1.0, "c": 0.99, "d": 2.0, 7: 2.0, 3: 34.01}
    assert _rare_levels(totals, 100.0, None) == {"c"}  # of less than a hundredth
    assert _rare_levels(totals, 1000.0, 6) == {"b", "c"}  # of less than two rows
    assert _rare_levels(totals, 100.0, 6) == {"c"}
    assert _rare_levels(totals, 100.0, 5) == {"c"}
    # The heaviest stay; of equal ones numbers before text.
    assert _rare_levels(totals, 100.0, 3) == {"c", "b", "d"}
    assert [levels_beside(columns, 500, 3000) for columns in (6, 7, 29, 31)] == [500, 428, 103, 100]


def test_one_warning_counts_the_other_columns():
    for notes, text in ((["", "a"], "a, gone"), (["a", "", "b", "c"], "a (and 2 more column(s)), gone")):
        with pytest.warns(UserWarning, match=rf"^{re.escape(text)}$"):
            _warn_of_unseen(notes, "gone")


def test_means_and_spreads_are_weighted_and_without_missing_values():
    rng = np.random.default_rng(0)
    values, weights = rng.standard_normal((30, 3)) * [1, 1e200, 1e-200] + [5, 0, 0], rng.random(30) + 0.5
    values[rng.random((30, 3)) < 0.2] = np.nan
    mean, spread = mean_and_spread(values, weights)
    for n, size in enumerate((1.0, 1e200, 1e-200)):
        present = ~np.isnan(values[:, n])
        column, share = values[present, n] / size, weights[present] / weights[present].sum()
        assert mean[n] / size == pytest.approx(share @ column, rel=1e-12)
        assert spread[n] / size == pytest.approx(np.sqrt(share @ (column - share @ column) ** 2), rel=1e-12)
    found = mean_and_spread(np.array([[np.nan, -7.5], [np.nan, -7.5]]), np.ones(2))
    assert [part.tolist() for part in found] == [[0, -7.5], [0, 0]]


def test_rare_is_a_share_of_the_weight_not_of_the_rows():
    frame = pd.DataFrame({"c": ["a"] * 97 + ["heavy"] + ["light"] * 2})
    weights = np.r_[np.ones(97), 50.0, 0.4, 0.4]
    by_weight = fit_encoding(frame_table(frame), weights).columns[0]
    assert (by_weight.levels, by_weight.rare) == (("a", "heavy"), ("light",))
    by_rows = fit_encoding(frame_table(frame), ONES(100)).columns[0]
    assert (by_rows.levels, by_rows.rare) == (("a", "heavy", "light"), ())


def test_too_many_rare_levels_are_forgotten(monkeypatch):
    monkeypatch.setattr(columns, "MOST_REMEMBERED", 2)
    frame = pd.DataFrame({"c": ["a"] * 997 + ["b", "c", "d"]})
    encoding, _ = encoded(frame_table(frame))
    assert (encoding.columns[0].levels, encoding.columns[0].rare) == (("a",), None)
    # Nobody can say whether it was seen, so nothing is said.
    assert encoding.numbers(frame_table(pd.DataFrame({"c": ["new"]}))).tolist() == [[1.0]]


@pytest.mark.parametrize("feature_map", ["auto", "hat", "polynomial"])
def test_unseen_values_are_the_mean_of_the_fits_vectors(feature_map):
    frame = pd.DataFrame({"c": ["a", "b", "b", "b"] * 5, "x": np.arange(20.0)})
    weights = np.random.default_rng(0).random(20) + 0.1
    encoding, vectors = encoded(frame_table(frame), weights, feature_map=feature_map)
    mean = torch.einsum("b,bni->ni", torch.from_numpy(weights / weights.sum()), vectors)
    largest = vectors.abs().max().item()
    torch.testing.assert_close(encoding.site_means, mean, rtol=0, atol=20 * ROUNDING * largest)
    assert (encoding.site_means.abs().max() == 0) == (feature_map == "auto")
    with pytest.warns(UserWarning, match=r"unseen in the fit|none missing in the fit") as told:
        found = encoding.vectors(
            torch.from_numpy(encoding.numbers(frame_table(pd.DataFrame({"c": ["z"], "x": np.nan}))))
        )
    assert len(told) == 2
    assert found[0].equal(encoding.site_means)


@pytest.mark.parametrize("name", ["affine", "polynomial", "identity", "trigonometric"])
@pytest.mark.parametrize("constant", [0.1, 1 / 3, -7e-9, 1e30, 1e-300, 0.0])
def test_a_constant_column_is_constant_whatever_its_digits(name, constant):
    encoding, vectors = encoded(Table(np.full((100, 1), constant)), feature_map=name)
    assert (encoding.shift.item(), encoding.scale.item()) == (constant, 1.0)
    assert vectors.equal(vectors[:1].expand_as(vectors))
    other = encoding.vectors(torch.tensor([[constant + 0.1]], dtype=torch.float64))
    assert other.abs().max() <= max(1.0, 0.1**3)


def test_a_column_that_is_constant_up_to_rounding_is_constant():
    column = np.array([0.1 * 3, 0.3, 0.1 + 0.2] * 20)
    assert len(set(column)) > 1
    assert fit_encoding(Table(column[:, None]), ONES(60), feature_map="affine").scale.item() == 1.0


@pytest.mark.parametrize("size", [1e-200, 1e30, 1e160])
def test_columns_of_any_size_are_standardised(size):
    x = np.random.default_rng(0).normal(size=(50, 2))
    _, vectors = encoded(Table(x * size), feature_map="identity")
    torch.testing.assert_close(vectors, encoded(Table(x), feature_map="identity")[1], rtol=1e-12, atol=1e-12)


def test_site_vectors_are_made_in_pieces_of_bounded_size(monkeypatch):
    frame = pd.DataFrame({"c": [f"u{i}" for i in range(50)]})
    encoding, whole = encoded(frame_table(frame), handle_unknown="error")
    monkeypatch.setattr(encoding_module, "NUMBERS_AT_ONCE", 500)
    pieces = list(encoding.chunks(torch.from_numpy(encoding.numbers(frame_table(frame)))))
    assert [len(piece) for piece in pieces] == [10] * 5
    assert torch.cat(pieces).equal(whole)


@pytest.mark.parametrize("name", ["identity", "affine", "polynomial"])
def test_formulas_see_standardised_columns(name):
    x = np.array([[10.0], [20.0], [30.0]])
    _, vectors = encoded(Table(x), feature_map=name)
    standard = (x - 20) / np.sqrt(200 / 3)
    torch.testing.assert_close(vectors, features.make(name)(standard))


def test_trigonometric_sees_the_unit_range():
    _, vectors = encoded(Table(np.array([[10.0], [30.0]])), feature_map="trigonometric")
    torch.testing.assert_close(vectors[:, 0], torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64))


def test_missing_values_do_not_trip_a_strict_range():
    x = np.array([[5.0], [6.0], [np.nan]])
    _, vectors = encoded(Table(x), feature_map=features.Hat(knots=2, outside="error"))
    assert vectors[2, 0].tolist() == [0, 0, 1]


def test_given_map_is_not_changed():
    hat = features.Hat(knots=3)
    fit_encoding(Table(np.eye(3)), ONES(3), feature_map=hat)
    assert hat == features.Hat(knots=3)


def test_onehot_takes_every_column_as_categories():
    encoding, vectors = encoded(Table(np.array([[1.0, 7.5], [2.0, 7.5]])), feature_map="onehot")
    assert encoding.widths == (2, 1)
    assert [column.levels for column in encoding.columns] == [(1, 2), (7.5,)]
    assert vectors[:, 0].tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("order", [[2, 0, 1], ["c", "a", "b"], np.array([2, 0, 1])])
def test_site_order_permutes_sites(order):
    frame = pd.DataFrame({"a": [0.0, 1, 2], "b": [5.0, 5, 6], "c": ["x", "y", "x"]})
    given, in_table = encoded(frame_table(frame), site_order=order), encoded(frame_table(frame))
    assert [column.label for column in given[0].sites] == ["column 'c'", "column 'a'", "column 'b'"]
    torch.testing.assert_close(given[1], in_table[1][:, [2, 0, 1]])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"site_order": [0, 0]}, "site_order must name each of the 2 columns once"),
        ({"site_order": [0]}, "site_order must name each of the 2 columns once"),
        ({"site_order": ["a", "z"]}, "site_order names 'z', which is no column"),
        ({"categorical_features": [2]}, r"categorical_features must hold column numbers 0 … 1, got 2"),
        ({"categorical_features": [True]}, "categorical_features as a mask must have 2 entries"),
        ({"categorical_features": [[0]]}, "categorical_features must be a list"),
        ({"feature_map": features.OneHot()}, 'feature_map="onehot" takes every column'),
    ],
)
def test_wrong_choices_are_named(option, message):
    with pytest.raises(ValueError, match=message):
        fit_encoding(frame_table(pd.DataFrame({"a": [0.0, 1], "b": [1.0, 0]})), ONES(2), **option)


def test_names_need_a_frame():
    with pytest.raises(ValueError, match="X has no column names"):
        fit_encoding(Table(np.eye(2)), ONES(2), categorical_features=["a"])


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 12),
    kinds=st.lists(
        st.sampled_from(["float", "missing", "constant", "int", "text", "category"]), min_size=1, max_size=5
    ),
    name=st.sampled_from(["auto", "hat", "trigonometric", "affine", "onehot"]),
    seed=st.integers(0, 1000),
)
def test_any_table_encodes_and_survives_json(rows, kinds, name, seed):
    rng = np.random.default_rng(seed)
    make = {
        "float": lambda: rng.normal(size=rows),
        "missing": lambda: np.where(rng.random(rows) < 0.5, np.nan, rng.normal(size=rows)),
        "constant": lambda: np.full(rows, 7.0),
        "int": lambda: rng.integers(-3, 3, rows),
        "text": lambda: rng.choice(["a", "b", "ü"], rows).astype(object),
        "category": lambda: pd.Categorical(rng.choice([1, 2, 3], rows)),
    }
    frame = pd.DataFrame({f"{index}": make[kind]() for index, kind in enumerate(kinds)})
    table = frame_table(frame)
    encoding, vectors = encoded(table, rng.random(rows) + 0.1, feature_map=name)
    assert vectors.shape == (rows, len(kinds), max(encoding.widths))
    assert bool(vectors.isfinite().all())
    for site, width in enumerate(encoding.widths):
        assert vectors[:, site, width:].abs().sum() == 0
    again = Encoding.from_config(json.loads(json.dumps(encoding.to_config())))
    assert again.vectors(torch.from_numpy(again.numbers(table))).equal(vectors)
