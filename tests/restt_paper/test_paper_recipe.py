"""What the row of Table VI with the paper's recipe takes from the paper, and that it can be had again."""

from __future__ import annotations

import numpy as np
import pytest

from restt.train import TrainConfig
from restt_paper.table6 import estimator_of, model_cell

SETTINGS = model_cell("paper", "boston", "restt-r50").settings


def paper_recipe(split):
    return estimator_of(SETTINGS, "cpu")(split)


def test_the_penalty_pulls_on_weights_as_the_papers_weight_decay_does():
    penalty = paper_recipe(0).estimator.penalty
    assert set(penalty) == {"chain", "linear", "head"}
    # The gradient of p · w² is 2 p w, and that of weight decay d is d w.
    assert [2 * weight for weight in penalty.values()] == pytest.approx([TrainConfig.paper().weight_decay] * 3)


def test_rows_held_out_to_choose_rate_and_map_follow_the_seed():
    def held(seed):
        return [sorted(rows) for _, rows in paper_recipe(seed).cv.split(np.zeros((100, 2)))]

    assert held(3) == held(3)
    assert held(3) != held(4)
