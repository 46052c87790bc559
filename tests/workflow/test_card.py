import json

import pytest

from restt.workflow import Card


def test_a_card_survives_json():
    card = Card("classification", "y", classes=["a", 1], scores=[{"model": "ResTT", "value": 0.5}], seconds=1)
    assert Card.from_json(json.loads(json.dumps(card.to_json()))) == card


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"version": 2}, "has version 2, this restt reads up to 1"),
        ({"version": "1"}, "must be a JSON object with a version"),
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
