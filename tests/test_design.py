"""Rows to label next: the closed form against brute force, and where it looks."""

import numpy as np
import pytest
import torch

import restt
from restt import ResTTRegressor
from restt.design import next_rows
from restt.prior.functionals import Joint, with_centre


@pytest.fixture(scope="module")
def model() -> ResTTRegressor:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (40, 2))
    y = np.sin(3 * x[:, 0]) + x[:, 1] + 0.1 * rng.standard_normal(40)
    return ResTTRegressor(effort="quick", random_state=0).fit(x, y)


def test_greedy_choice_is_that_of_conditioning_anew(model):
    """Each choice lowers the mean variance most, by conditioning the joint covariance on the rows chosen so far."""
    candidates = np.random.default_rng(1).uniform(-1.5, 1.5, (25, 2))
    found = next_rows(model, candidates, 4)
    joint = Joint(with_centre(model.spread_), candidates)
    outputs, _ = model._outputs_and_numbers(candidates)
    matrix = joint.covariance(joint).numpy()
    noise = joint.noise(torch.from_numpy(outputs.mean(axis=1))).numpy()
    warp = model.target_.model
    weights = np.exp(-2 * warp.log_slope(warp.decode(outputs)))[:, 0]

    def variance(rows: list[int]) -> float:
        inner = matrix[np.ix_(rows, rows)] + np.diag(noise[rows])
        left = matrix - matrix[:, rows] @ np.linalg.solve(inner, matrix[rows])
        return float(weights @ np.diag(left))

    chosen: list[int] = []
    for _ in range(4):
        rest = [row for row in range(25) if row not in chosen]
        chosen.append(min(rest, key=lambda row: variance([*chosen, row])))
    assert found.tolist() == chosen


def test_joint_covariance_agrees_with_its_diagonal(model):
    joint = Joint(with_centre(model.spread_), np.random.default_rng(2).uniform(-1, 1, (12, 2)))
    matrix = joint.covariance(joint)
    torch.testing.assert_close(matrix.diagonal(), joint.variance())
    assert float(torch.linalg.eigvalsh(matrix).min()) > -1e-9


def test_looks_where_predictions_are_wanted(model):
    candidates = np.array([[-0.9, 0.0], [3.0, 0.0]])
    assert next_rows(model, candidates, 1, over=np.array([[2.9, 0.1], [3.1, -0.1]])).tolist() == [1]
    assert sorted(next_rows(model, candidates, 2)) == [0, 1]


def test_names_what_does_not_fit(model):
    with pytest.raises(ValueError, match="k must be at most the number of candidates, 3"):
        next_rows(model, np.zeros((3, 2)), 4)
    with pytest.raises(ValueError, match="k must be"):
        next_rows(model, np.zeros((3, 2)), 0)
    with pytest.raises(ValueError, match="X has 3 features"):
        next_rows(model, np.zeros((3, 3)), 1)
    with pytest.raises(TypeError, match="must be a ResTTRegressor"):
        next_rows(restt.ResTTNetRegressor(), np.zeros((3, 2)), 1)
