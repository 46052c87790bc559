import pytest
import torch

from restt.train import Penalty, TrainConfig, train
from restt.train.penalty import GRADE_OF_ROLE, penalty_slopes
from restt.train.stacked import Stacked
from tests.train.problems import regression, small_module


def test_slopes_are_the_gradient_of_the_penalty():
    module = small_module(runs=2, bias=True)
    penalty = Penalty(chain=(0.5, 0.25), linear=0.125, head=(0.0, 2.0))
    grades = {"chain": (0.5, 0.25), "linear": (0.125, 0.125), "head": (0.0, 2.0)}
    total = torch.zeros(())
    for role, grade in GRADE_OF_ROLE.items():
        squares = getattr(module, role).flatten(1).square().sum(1)
        total = total + (torch.tensor(grades[grade]) * squares).sum()
    total.backward()
    slopes = penalty_slopes(penalty, Stacked(module).weights, [0, 1], 2)
    assert set(slopes) == set(GRADE_OF_ROLE)
    for role, slope in slopes.items():
        assert torch.allclose(slope * getattr(module, role), getattr(module, role).grad), role


def test_roles_without_a_penalty_cost_nothing():
    slopes = penalty_slopes(Penalty(chain=1.0), Stacked(small_module(runs=1)).weights, [0], 1)
    assert list(slopes) == ["chain"]


def test_a_heavy_grade_shrinks_its_role_in_its_run_only():
    x, y = regression()
    module = small_module(runs=2)
    config = TrainConfig(epochs=60, batch_size=None, lr=0.02, penalty=Penalty(chain=(0.0, 1.0)), seed=0)
    for _ in train(module, x, y, config=config):
        pass
    size = module.chain.detach().flatten(1).norm(dim=1)
    assert size[1] < 0.05 * size[0]
    assert module.linear.detach()[1].norm() > 0.1


def test_a_module_without_roles_is_refused():
    x, y = regression()
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(10, 1))
    with pytest.raises(ValueError, match=r"penalty is graded by the roles of a restt\.ResTT, got tensors"):
        train(model, x, y, config=TrainConfig(penalty=Penalty(chain=1.0)))
