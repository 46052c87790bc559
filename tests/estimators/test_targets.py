"""Targets of a training: standardised values and numbered classes, their weights, and what a file may say of them."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from restt.estimators.tables import output_columns
from restt.estimators.targets import Labels, Values, class_numbers

LABELS = Labels(np.array(["a", "b", "c"]), np.array([0.5, 0.3, 0.2]), None, True)


def test_values_are_standardised_at_any_size():
    y = np.array([[1.0, 7.0, 3e300], [3.0, 7.0, -3e300], [4.0, 7.0, 0.0]])
    values = Values.fit(y, np.array([1.0, 1.0, 2.0]))
    assert (values.mean[:2].tolist(), values.outputs, values.flat) == ([3.0, 7.0], 3, False)
    found = values.encode(y).numpy()
    assert found[:, 0] == pytest.approx((y[:, 0] - 3) / np.sqrt(1.5))
    assert found[:, 1].tolist() == [0.0] * 3
    assert found[:, 2] == pytest.approx([np.sqrt(2), -np.sqrt(2), 0])
    assert values.decode(found) == pytest.approx(y)
    assert values.decode_spread(np.ones((1, 3)))[0].tolist() == values.scale.tolist()
    assert values.initial_bias().tolist() == [0.0] * 3
    with pytest.raises(ValueError, match=re.escape("y must have 3 output(s) as in the first fit, got shape (3,)")):
        values.encode(y[:, 0])
    flat = Values.fit(y[:, 0], np.ones(3))
    assert (flat.outputs, flat.flat, flat.decode(np.zeros((2, 1))).shape) == (1, True, (2,))
    assert output_columns(y[:, 0]).shape == (3, 1)
    assert output_columns(y) is y


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"mean": [[0.0]], "scale": [[1.0]]}, "mean and scale of y do not fit"),
        ({"scale": [1.0, 1.0]}, "mean and scale of y do not fit"),
        ({"mean": [np.inf]}, "mean and scale of y do not fit"),
        ({"scale": [-1.0]}, "mean and scale of y do not fit"),
        ({"mean": [0.0, 0.0], "scale": [1.0, 1.0]}, "y cannot be flat with 2 outputs"),
    ],
)
def test_values_that_make_no_sense_are_refused(change, told):
    config = {"mean": [0.0], "scale": [0.0], "flat": True}
    assert Values.from_config(config).to_config() == config
    with pytest.raises(ValueError, match=told):
        Values.from_config({**config, **change})


def test_penalties_weights_and_starts_of_labels():
    assert LABELS.auto_penalty(10) == LABELS.auto_penalty(10**6) == 0.005
    squares = replace(LABELS, logits=False)
    assert squares.auto_penalty(10) == pytest.approx(0.02 * (0.25 + 0.21 + 0.16) / 3)
    assert squares.initial_bias().tolist() == [0.5, 0.3, 0.2]
    weighted = replace(LABELS, class_weights=np.array([1.0, 4.0, 9.0]))
    y, weights = np.array(["c", "a", "b"]), np.array([1.0, 2.0, 0.5])
    assert weighted.row_weights(y, weights).tolist() == [9.0, 2.0, 2.0]
    assert LABELS.row_weights(y, weights) is weights
    bias = replace(LABELS, prior=np.array([0.5, 0.5, 0.0])).initial_bias().numpy()
    assert bias.sum() == pytest.approx(0.0)
    assert np.exp(bias - bias[0]).tolist() == pytest.approx([1.0, 1.0, 0.002])  # a class that is yet to come


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"dtype": "<U1024"}, None),
        ({"dtype": "<U1025"}, "classes cannot be of dtype '<U1025'"),
        ({"dtype": "<U1100", "classes": ["x" * 1100, "b", "c"]}, None),
        ({"dtype": "<U1101", "classes": ["x" * 1100, "b", "c"]}, "classes cannot be of dtype '<U1101'"),
        ({"dtype": "<i8", "classes": [1, 2, 3]}, None),
        ({"class_weights": [1.0, 2.0]}, "class_weights must have one entry per class"),
        ({"class_weights": [1.0, 2.0, 3.0]}, None),
        ({"prior": [1.0]}, "prior must have one entry per class"),
        ({"temperature": -1.0}, "a temperature above 0"),
        ({"classes": [], "prior": []}, "there must be classes"),
        ({"classes": [None, "a", "b"], "dtype": "object"}, "classes must be text, booleans or numbers"),
    ],
)
def test_labels_of_a_file_are_those_that_make_sense(change, told):
    config = {**LABELS.to_config(), **change}
    if told is None:
        again = Labels.from_config(config).to_config()
        assert again == config
    else:
        with pytest.raises(ValueError, match=re.escape(told)):
            Labels.from_config(config)


def test_an_unknown_class_is_named_with_its_row():
    classes = np.array([2, 4, 6])
    assert class_numbers(np.array([6, 2, 4]), classes).tolist() == [2, 0, 1]
    for unknown in (1, 5, 7):
        told = f"y has the class {unknown} in row 1, which is not one of the classes [2, 4, 6]"
        with pytest.raises(ValueError, match=re.escape(told)):
            class_numbers(np.array([2, unknown]), classes)
    with pytest.raises(TypeError, match="classes must be text, booleans or numbers to be saved"):
        replace(LABELS, classes=np.array([(1,), "b", "c"], dtype=object)).to_config()
