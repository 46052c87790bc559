import pytest
import torch

from restt import ResTT
from restt.meanfield import stable_rates
from restt.train import TrainConfig, train


def rows(sites, seed=0):
    generator = torch.Generator().manual_seed(seed)
    # Mostly empty, as images of digits are, and brighter where the class says so.
    y = torch.arange(64) % 4
    x = torch.rand(64, sites, generator=generator) * (torch.rand(64, sites, generator=generator) < 0.2)
    x += 0.3 * (torch.arange(sites) * 4 // sites == y[:, None])
    angle = torch.pi / 2 * x
    return torch.stack([torch.cos(angle), torch.sin(angle)], dim=-1), y


def module(sites):
    made = ResTT(sites, 2, 20, 4)
    made.reset_parameters(seed=0)
    return made


def losses(sites, steps, **settings):
    config = TrainConfig(epochs=steps, batch_size=None, lr=1e-3, seed=0, max_failures=None, **settings)
    return [record.train_loss[0] for record in train(module(sites), *rows(sites), config=config)]


def test_limits_of_each_parameter():
    made = module(500)
    rate_of = {id(p): group["lr"] for group in stable_rates(made, 0.01) for p in group["params"]}
    found = {name: rate_of[id(parameter)] for name, parameter in made.named_parameters()}
    assert found.pop("chain") == pytest.approx(1 / 10_000)
    assert found.pop("linear") == pytest.approx(1 / 500 / 20**0.5)
    assert set(found.values()) == {0.01}


def test_a_short_chain_has_one_rate():
    assert [group["lr"] for group in stable_rates(module(5), 1e-3)] == [1e-3]


@pytest.mark.parametrize("sites", [784, 3000])
def test_the_loss_of_a_long_chain_never_exceeds_its_start(sites):
    stable = losses(sites, 12)
    assert max(stable) <= stable[0]
    assert stable[-1] < 0.9 * stable[0]
    assert max(losses(sites, 4, rates="uniform")) > 1.5 * stable[0]


def test_training_takes_the_steps_of_torchs_adam_on_these_groups():
    x, y = rows(300)
    own, reference = module(300).double(), module(300).double()
    for _ in train(own, x.double(), y, config=TrainConfig(epochs=5, batch_size=None, lr=0.01, seed=0)):
        pass
    optimizer = torch.optim.Adam(stable_rates(reference, 0.01))
    for _ in range(5):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(reference(x.double()), y).backward()
        optimizer.step()
    for (name, value), expected in zip(own.named_parameters(), reference.parameters(), strict=True):
        assert torch.allclose(value, expected, rtol=1e-6, atol=1e-9), name


@pytest.mark.parametrize("lr", [0.0, -1.0, float("nan")])
def test_a_rate_that_is_none(lr):
    with pytest.raises(ValueError, match="lr must be finite and above 0"):
        stable_rates(module(5), lr)
