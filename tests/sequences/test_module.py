"""A residual train with tied cores: against a loop, any length, streamed."""

import pytest
import torch

import restt
from restt import ResTTSequence


@pytest.fixture
def module() -> ResTTSequence:
    made = ResTTSequence(feature_dim=3, bond_dim=5, outputs=2, length=7, dtype=torch.float64)
    made.reset_parameters(seed=0)
    return made


def looped(module: ResTTSequence, x: torch.Tensor) -> torch.Tensor:  # (B, T, I) -> (B, O)
    found = []
    for sequence in x:
        h = module.start
        for step in sequence:
            h = h + sum(step[i] * (h @ module.core[i]) for i in range(len(step))) + step @ module.entry
        found.append(h @ module.head + module.bias)
    return torch.stack(found)


@pytest.mark.parametrize("steps", [1, 2, 12])
@pytest.mark.parametrize("backend", ["auto", "reference", "eager"])
def test_outputs_and_gradients_are_the_loops(module, steps, backend):
    x = torch.randn(4, steps, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    wanted = looped(module, x)
    grads = torch.autograd.grad(wanted.square().sum(), [x, *module.parameters()])
    with restt.chain.backend(backend):
        found = module(x)
        same = torch.autograd.grad(found.square().sum(), [x, *module.parameters()])
    torch.testing.assert_close(found, wanted)
    for mine, theirs in zip(same, grads, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_padding_does_not_count(module):
    x = torch.randn(3, 9, 3, dtype=torch.float64)
    lengths = torch.tensor([9, 4, 1])
    alone = torch.cat([module(x[k : k + 1, :count]) for k, count in enumerate(lengths.tolist())])
    torch.testing.assert_close(module(x, lengths), alone)


def test_state_is_carried_on(module):
    x = torch.randn(3, 9, 3, dtype=torch.float64)
    _, state = module.stream(x[:, :4])
    for t in range(4, 9):
        output, state = module.stream(x[:, t : t + 1], state)
    torch.testing.assert_close(output, module(x))


def test_equals_a_residual_train_with_equal_cores(module):
    """From a start of 0 it is the ResTT whose sites share their weights."""
    x = torch.randn(4, 6, 3, dtype=torch.float64)
    same = restt.ResTT(sites=6, feature_dim=3, bond_dim=5, outputs=2, bias=True, dtype=torch.float64)
    with torch.no_grad():
        module.start.zero_()
        same.first.copy_(module.entry)
        same.chain.copy_(module.core.expand(4, -1, -1, -1))
        same.linear.copy_(module.entry.expand(4, -1, -1))
        same.last_chain.copy_(module.core @ module.head)
        same.last_linear.copy_(module.entry @ module.head)
        same.last_skip.copy_(module.head)
        same.bias.copy_(module.bias)
    torch.testing.assert_close(module(x), same(x))


@pytest.mark.parametrize(
    ("x", "lengths", "message"),
    [
        (torch.rand(2, 0, 3), None, "length 0"),
        (torch.rand(2, 4, 2), None, r"shape \(B, T, 3\)"),
        (torch.rand(2, 4, 3), torch.tensor([4, 0]), "between 1 and 4, got 0"),
        (torch.rand(2, 4, 3), torch.tensor([4]), r"lengths must have shape \(2,\)"),
    ],
)
def test_names_what_does_not_fit(module, x, lengths, message):
    with pytest.raises(ValueError, match=message):
        module(x.double(), lengths)
