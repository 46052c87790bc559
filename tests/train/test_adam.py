import pytest
import torch

from restt.train.step import Adam, Update, neighbours

SHAPES = {"a": (3, 4, 5), "b": (3, 2), "c": (3,)}


def gradients_at(step):
    generator = torch.Generator().manual_seed(step)
    return {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in SHAPES.items()}


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
@pytest.mark.parametrize(
    ("rates", "decays", "expected_groups"),
    [((0.1, 0.1, 0.1), (1e-2,) * 3, 1), ((0.1, 0.1, 0.3), (1e-2,) * 3, 2), ((0.1, 0.2, 0.3), (0.0, 1e-2, 1e-1), 3)],
)
def test_every_run_is_updated_as_torchs_optimizer_would_alone(optimizer, rates, decays, expected_groups):
    start = gradients_at(100)
    stacked = {name: value.clone() for name, value in start.items()}
    adam = Adam(stacked, optimizer)
    groups = neighbours(list(zip(rates, decays, strict=True)))
    assert len(groups) == expected_groups
    for step in range(5):
        for group in groups:
            adam.step(gradients_at(step), Update(group, decays[group.start], step + 1.0, rates[group.start]))
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[optimizer]
    for run in range(3):
        alone = {name: value[run].clone().requires_grad_() for name, value in start.items()}
        reference = kind(alone.values(), lr=rates[run], weight_decay=decays[run])
        for step in range(5):
            for name, value in alone.items():
                value.grad = gradients_at(step)[name][run]
            reference.step()
        for name, value in alone.items():
            assert torch.allclose(stacked[name][run], value, rtol=1e-9, atol=1e-12), (run, name)


def test_a_group_leaves_the_other_runs_alone():
    weights = gradients_at(0)
    before = {name: value.clone() for name, value in weights.items()}
    adam = Adam(weights)
    adam.step(gradients_at(1), Update(range(1, 3), 0.0, 1.0, 0.2))
    for name, value in before.items():
        assert torch.equal(weights[name][0], value[0])
        assert torch.equal(adam.first[name][0], torch.zeros_like(value[0]))
        assert not torch.equal(weights[name][1:], value[1:])
