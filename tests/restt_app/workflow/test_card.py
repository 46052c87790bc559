import json

import pytest

from restt_app.workflow import Card


def test_a_card_survives_json():
    card = Card("classification", "y", classes=["a", 1], scores=[{"model": "ResTT", "value": 0.5}], seconds=1)
    assert Card.from_json(json.loads(json.dumps(card.to_json()))) == card


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"version": 2}, "has version 2, this restt reads up to 1"),
        ({"version": "1"}, "'version' of the model card must be a int"),
        ({"colour": "red"}, "has no entry 'colour'"),
        ({"task": "ranking"}, "task of the model card must be one of"),
        ({"columns": {}}, "'columns' of the model card must be a list"),
        ({"seconds": "long"}, "'seconds' of the model card must be a float"),
    ],
)
def test_what_is_no_card_is_refused(change, expected):
    with pytest.raises(ValueError, match=expected):
        Card.from_json({**Card("regression", "y").to_json(), **change})


def test_a_card_without_a_target_is_refused():
    with pytest.raises(ValueError, match="lacks 'target'"):
        Card.from_json({"version": 1, "task": "regression"})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"kind": "colour"}, "cannot hold 'colour' as '1234.5'"),
        ({"layout": "%Q"}, "cannot hold 'number' as '%Q'"),
        ({"missing": True}, "'missing' of a column of a model card must be a int, got True"),
        ({"inputs": ["age", 3]}, "inputs and levels of a column of a model card must be texts"),
        ({"inputs": ["age of somebody"]}, "column 'age' of a model card has no input 'age of somebody'"),
        ({"inputs": ["age", "age month"]}, "column 'age' of a model card has no input 'age month'"),
        ({"colour": "red"}, "a column of a model card has no entry 'colour'"),
    ],
)
@pytest.mark.parametrize("place", ["columns", "target_column"])
def test_a_card_with_a_damaged_column_is_refused(change, expected, place):
    column = {"name": "age", "kind": "number", "layout": "1234.5", "missing": 0, "distinct": 9, "inputs": ["age"]}
    card = Card("regression", "y", columns=[column], target_column=column).to_json()
    assert Card.from_json(card).columns == [column]
    damaged = {**column, **change}
    with pytest.raises(ValueError, match=expected):
        Card.from_json({**card, place: [damaged] if place == "columns" else damaged})
