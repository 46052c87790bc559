"""What all readers of tree ensembles share."""

import numpy as np
import pandas as pd
import pytest

from restt.explain.columns import OTHER
from restt.explain.trees.model import _label
from restt.explain.trees.reader import Split, column_names, columns_of, nested_tree, numbers_of, output_names


def test_nested_nodes_are_listed_level_by_level():
    nodes = {
        "root": Split(2, "left", "right", 0.5, True),
        "left": np.array([1.0, 2.0]),
        "right": Split(0, "low", "high", codes=[3, 5]),
        "low": np.array([3.0, 4.0]),
        "high": np.array([5.0, 6.0]),
    }
    tree = nested_tree("root", nodes.__getitem__, listed_left=False)
    assert tree.column.tolist() == [2, -1, 0, -1, -1]
    inner = tree.column >= 0
    assert (tree.left[inner].tolist(), tree.right[inner].tolist()) == ([1, 3], [2, 4])
    assert tree.threshold[inner].tolist() == [0.5, 0.0]
    assert tree.missing_left.tolist() == [True, False, False, False, False]
    assert tree.value.tolist() == [[0, 0], [1, 2], [0, 0], [3, 4], [5, 6]]
    assert {node: codes.tolist() for node, codes in tree.codes.items()} == {2: [3, 5]}
    assert not tree.listed_left


@pytest.mark.parametrize(
    ("classes", "count", "names"),
    [
        (None, 1, ("y",)),
        (None, 2, ("y0", "y1")),
        (["no", "yes"], 1, ("yes",)),
        (["no", "yes"], 2, ("no", "yes")),
        ([1, 2, 3], 3, ("1", "2", "3")),
        ([1, 2, 3], 1, ("y",)),
    ],
)
def test_outputs_are_called_after_classes(classes, count, names):
    model = type("Model", (), {} if classes is None else {"classes_": classes})
    assert output_names(model, count) == names


def test_columns_are_taken_by_name_or_place():
    assert column_names(None, 2) == ("x0", "x1")
    assert column_names(["a", 1], 2) == ("a", "1")
    table = pd.DataFrame({"b": [1.0], "a b": [2.0]})
    assert [column.tolist() for column in columns_of(table, ["a_b", "b"], True)] == [[2.0], [1.0]]
    assert [column.tolist() for column in columns_of(table, ["p", "q"], False)] == [[1.0], [2.0]]
    assert [column.tolist() for column in columns_of(table.to_numpy(), ["p", "q"], True)] == [[1.0], [2.0]]
    for wrong in (table[["b"]], np.ones((2, 3)), np.ones(2)):
        with pytest.raises(ValueError, match="X must be a table of 2 columns"):
            columns_of(wrong, ["p", "q"], False)


def test_numbers_are_rounded_and_levels_are_their_places():
    table = pd.DataFrame({"k": ["v", "u", "z"], "a": [0.1, np.nan, 1e300]})
    found = numbers_of(table, ["k", "a"], True, single=True, levels={0: ["u", "v"]})
    np.testing.assert_array_equal(found, [[1, np.float32(0.1)], [0, np.nan], [np.nan, np.inf]])
    coded = numbers_of(table.assign(k=[1, 0, 7]), ["k", "a"], True, levels={0: ["u", "v"]})
    np.testing.assert_array_equal(coded, [[1, 0.1], [0, np.nan], [7, 1e300]])  # numbers are codes already
    with pytest.raises(ValueError, match="X has a missing value in column 'a', which"):
        numbers_of(table, ["k", "a"], True, missing=False, levels={0: ["u", "v", "z"]})
    with pytest.raises(ValueError, match="X has a missing value in column 'a', which"):  # the first of two
        numbers_of(np.array([[0, np.nan, np.nan]]), ["k", "a", "b"], True, missing=False)
    with pytest.raises(TypeError, match="X must hold numbers in column 'k'"):
        numbers_of(table, ["k", "a"], True)


def test_a_code_stands_for_its_level():
    assert [_label(["u", "v"], code) for code in (0.0, 1.0, 2.0, -1.0)] == ["u", "v", OTHER, OTHER]
    assert np.isnan(_label(["u"], np.nan))
