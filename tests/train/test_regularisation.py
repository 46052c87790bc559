from itertools import product

import pytest
import torch

from restt import Topology
from restt._common.seeds import stream_keys
from restt.train import Penalty, TrainConfig, train
from restt.train.augment import SiteDropout, droppable_sites
from restt.train.runs import RunsView
from restt.train.step import GRADE_OF_ROLE, penalty_slopes
from tests.train.problems import regression, small_module, weights


def test_slopes_are_the_gradient_of_the_penalty():
    module = small_module(runs=2, bias=True)
    penalty = Penalty(chain=(0.5, 0.25), linear=0.125, head=(0.0, 2.0))
    grades = {"chain": (0.5, 0.25), "linear": (0.125, 0.125), "head": (0.0, 2.0)}
    total = torch.zeros(())
    for role, grade in GRADE_OF_ROLE.items():
        squares = getattr(module, role).flatten(1).square().sum(1)
        total = total + (torch.tensor(grades[grade]) * squares).sum()
    total.backward()
    slopes = penalty_slopes(penalty, RunsView(module).weights, [0, 1], 2)
    assert set(slopes) == set(GRADE_OF_ROLE)
    for role, slope in slopes.items():
        assert torch.allclose(slope * getattr(module, role), getattr(module, role).grad), role


def test_roles_without_a_penalty_cost_nothing():
    slopes = penalty_slopes(Penalty(chain=1.0), RunsView(small_module(runs=1)).weights, [0], 1)
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


def trained_by_hand(module, x, y, steps, lr, grades):
    """Adam on the mean squared error plus Σ weight · ‖W - W₀‖², by autograd."""
    start = {name: value.detach().clone() for name, value in module.named_parameters()}
    optimizer = torch.optim.Adam(module.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (module(x)[..., 0] - y).square().mean()
        for role, grade in GRADE_OF_ROLE.items():
            loss = loss + grades[grade] * (getattr(module, role) - start[role]).square().sum()
        loss.backward()
        optimizer.step()


def test_a_penalty_towards_the_start_is_the_one_that_autograd_sees():
    x, y = regression(dtype=torch.float64)
    grades = {"chain": 0.3, "linear": 0.1, "head": 0.02}
    expected = small_module(dtype=torch.float64)
    trained_by_hand(expected, x, y, 7, 0.05, grades)
    module = small_module(dtype=torch.float64)
    config = TrainConfig(epochs=7, batch_size=None, lr=0.05, penalty=Penalty(**grades, towards="start"), seed=0)
    list(train(module, x, y, config=config))
    for role in GRADE_OF_ROLE:
        torch.testing.assert_close(getattr(module, role), getattr(expected, role), rtol=1e-9, atol=1e-12)


def test_a_heavy_penalty_towards_the_start_leaves_a_run_where_it_was():
    x, y = regression()
    module = small_module(runs=3)
    before = weights(module)
    heavy = Penalty(chain=(1e-6, 1e3, 1e3), linear=(0.0, 1e3, 1e3), head=(0.0, 1e3, 1e3), towards="start")
    config = TrainConfig(epochs=(100, 50, 100), batch_size=None, lr=0.02, schedule="cosine", penalty=heavy, seed=0)
    list(train(module, x, y, config=config))
    moved = (module.chain.detach() - before["chain"]).flatten(1).norm(dim=1)
    assert moved[1] < 1e-2 * moved[0]
    assert moved[2] < 1e-2 * moved[0]


def test_what_a_penalty_may_pull_towards():
    with pytest.raises(ValueError, match=r"penalty\.towards must be"):
        Penalty(chain=1.0, towards="mean")
    assert Penalty(chain=1.0).to_dict() == {"chain": 1.0, "linear": 0.0, "head": 0.0, "towards": "zero"}
    assert Penalty(chain=1.0, towards="start").to_dict()["towards"] == "start"


def test_a_module_without_roles_is_refused():
    x, y = regression()
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(10, 1))
    with pytest.raises(ValueError, match=r"penalty is graded by the roles of a restt\.ResTT, got tensors"):
        train(model, x, y, config=TrainConfig(penalty=Penalty(chain=1.0)))


MIXED = Topology.residual(5).without_skip(3).skip_to_output(4)


def test_only_sites_with_a_full_skip_may_drop():
    assert droppable_sites(Topology.residual(4)) == (False, True, True, True)
    assert droppable_sites(MIXED) == (False, True, False, False, True)
    assert droppable_sites(Topology.residual(3).skip_to_output(3)) == (False, True, True)  # at site N, the same thing
    assert droppable_sites(Topology.plain(4)) == (False,) * 4
    assert droppable_sites(Topology.residual(1)) == (False,)


@pytest.mark.parametrize("topology", [Topology.residual(5), MIXED])
def test_the_expected_output_is_the_output_without_dropout(topology):
    module = small_module(sites=5, outputs=2, topology=topology, dtype=torch.float64)
    x, _ = regression(4, dtype=torch.float64)
    p, places = 0.3, [site for site, may in enumerate(droppable_sites(topology)) if may]
    expected = torch.zeros(4, 2, dtype=torch.float64)
    for kept in product((0.0, 1.0), repeat=len(places)):
        factor, chance = torch.ones(5, dtype=torch.float64), 1.0
        for site, keep in zip(places, kept, strict=True):
            factor[site] = keep / (1 - p)
            chance *= (1 - p) if keep else p
        expected += chance * module(x * factor[:, None]).detach()
    assert torch.allclose(expected, module(x).detach(), rtol=1e-12)


def test_masks_have_the_runs_own_probability_and_stream():
    x = torch.ones(1, 2000, 5, 2)
    keys = stream_keys([0, 0, 0], range(3), "dropout", 0)
    dropped = SiteDropout(MIXED, [0.0, 0.25, 0.5], x)(x, keys, 0)
    assert torch.equal(dropped[0], x[0])
    for run, p in ((1, 0.25), (2, 0.5)):
        assert torch.equal(dropped[run][:, [0, 2, 3]], x[0][:, [0, 2, 3]])
        droppable = dropped[run][:, [1, 4], 0]
        assert (droppable == 0).float().mean() == pytest.approx(p, abs=0.03)
        assert torch.allclose(droppable[droppable > 0], torch.tensor(1 / (1 - p)))
    alone = SiteDropout(MIXED, [0.5], x)(x, keys[2:], 0)
    assert torch.equal(alone[0], dropped[2])


def test_dropout_changes_the_training_and_not_the_evaluation():
    x, y = regression()
    found = {}
    for p in (0.0, 0.5):
        module = small_module()
        record = next(
            iter(
                train(module, x, y, config=TrainConfig(batch_size=None, dropout=p, lr=1e-12, seed=0), validation=(x, y))
            )
        )
        found[p] = record
    assert found[0.5].train_loss != found[0.0].train_loss
    assert found[0.5].validation["loss"] == pytest.approx(found[0.0].validation["loss"], rel=1e-5)


def test_a_module_without_sites_is_refused():
    x, y = regression()
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(10, 1))
    with pytest.raises(ValueError, match=r"dropout drops sites and needs a restt\.ResTT, got Sequential"):
        train(model, x, y, config=TrainConfig(dropout=0.1))
