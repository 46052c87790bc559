"""The sweeps on trains small enough to contract by brute force."""

from __future__ import annotations

import math
import string

import pytest
import torch

from restt_baselines import mps_dmrg as dmrg
from restt_baselines.mps_dmrg import LabelledTrain, Sweeps, gradient_of, outputs_of, spanned, split

SITES, ROWS, OUTPUTS = 6, 40, 3


def site_vectors(sites: int = SITES, rows: int = ROWS) -> torch.Tensor:
    angles = torch.rand(sites, rows, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.stack([angles.cos(), angles.sin()], dim=-1)


def targets() -> torch.Tensor:
    classes = torch.randint(0, OUTPUTS, (ROWS,), generator=torch.Generator().manual_seed(1))
    return torch.nn.functional.one_hot(classes, OUTPUTS).double()


def sweeps(**changes) -> Sweeps:
    x = site_vectors()
    train = spanned(x, OUTPUTS, 3, torch.arange(ROWS))
    settings = {"bond_dim": 4, "cutoff": 1e-12, "steps": 3, "penalty": 1e-3} | changes
    return Sweeps(train, x, targets(), **settings)


def whole_tensor(train: LabelledTrain) -> torch.Tensor:  # (I, …, I, O)
    """All cores and gains contracted to one tensor."""
    found = torch.ones(1, 1, dtype=torch.float64)  # (what came before, bond), the label wherever it has appeared
    shape: list[int] = []
    for n, core in enumerate(train.cores):
        effective = (core * train.gains[n]).flatten(1, -2)  # (l, I or I·O, r)
        found = torch.einsum("am,mir->air", found, effective).flatten(0, 1)
        shape += list(core.shape[1:-1])
    whole = found.view(shape)
    return whole.movedim(train.centre + 1, -1)


def by_brute_force(train: LabelledTrain, x: torch.Tensor) -> torch.Tensor:  # (B, O)
    letters = string.ascii_lowercase[: len(x)]
    parts = ",".join(f"z{letter}" for letter in letters)
    return torch.einsum(f"{letters}y,{parts}->zy", whole_tensor(train), *x)


def assert_canonical(train: LabelledTrain) -> None:
    for n, core in enumerate(train.cores):
        if n == train.centre:
            assert core.dim() == 4
            continue
        matrix = core.flatten(0, 1) if n < train.centre else core.flatten(1).T
        identity = torch.eye(matrix.shape[1], dtype=matrix.dtype)
        assert (matrix.T @ matrix - identity).abs().max() < 1e-6, n


def test_outputs_are_those_of_the_whole_tensor_wherever_the_label_stands():
    optimiser = sweeps()
    for step in optimiser.to_the_right():
        expected = by_brute_force(optimiser.train, optimiser.x)
        torch.testing.assert_close(optimiser.train(optimiser.x), expected, rtol=1e-9, atol=1e-9)
        assert optimiser.train.centre == step.bond + 1
    for step in optimiser.to_the_left():
        expected = by_brute_force(optimiser.train, optimiser.x)
        torch.testing.assert_close(optimiser.train(optimiser.x), expected, rtol=1e-9, atol=1e-9)
        assert optimiser.train.centre == step.bond


def test_sweeps_keep_the_canonical_gauge():
    optimiser = sweeps()
    assert_canonical(optimiser.train)
    for _ in range(3):
        for _ in optimiser.to_the_right():
            assert_canonical(optimiser.train)
        for _ in optimiser.to_the_left():
            assert_canonical(optimiser.train)


def test_single_precision_keeps_the_gauge_too():
    x = site_vectors(30).float()
    optimiser = Sweeps(
        spanned(x, OUTPUTS, 3, torch.arange(ROWS)),
        x,
        targets().float(),
        bond_dim=8,
        cutoff=1e-10,
        steps=4,
        penalty=1e-3,
    )
    for _ in range(2):
        list(optimiser.to_the_right())
        assert_canonical(optimiser.train)
        list(optimiser.to_the_left())
        assert_canonical(optimiser.train)


@pytest.mark.parametrize("penalty", [0.0, 1e-3])
def test_no_kept_step_raises_the_cost_and_costs_are_the_definition(penalty):
    optimiser = sweeps(penalty=penalty)
    fell = 0
    for sweep in (optimiser.to_the_right, optimiser.to_the_left) * 2:
        for step in sweep():
            assert all(after <= before for before, after in zip(step.costs, step.costs[1:], strict=False))
            fell += step.costs[-1] < step.costs[0] * (1 - 1e-6)
    assert fell > 5
    # Without truncation the cost after the last step is that of the train as it stands.
    exact = sweeps(penalty=0.0, bond_dim=100, cutoff=0.0)
    for step in exact.to_the_right():
        error = exact.target - by_brute_force(exact.train, exact.x)
        assert step.costs[-1] == pytest.approx(0.5 * error.square().sum().item(), rel=1e-6, abs=1e-9)


def test_many_steps_at_one_bond_reach_the_least_squares_solution():
    optimiser = sweeps(steps=300, penalty=1e-2)
    step = next(optimiser.to_the_right())
    fresh = sweeps()
    left = (fresh.x[0].unsqueeze(2) * torch.ones(ROWS, 1, 1)).flatten(1)
    right = (fresh.x[1].unsqueeze(2) * fresh._right[1].unsqueeze(1)).flatten(1)
    design = (left.unsqueeze(2) * right.unsqueeze(1)).flatten(1)  # (B, A·C)
    ridge = 1e-2 * ROWS
    normal = design.T @ design + ridge * torch.eye(design.shape[1], dtype=torch.float64)
    solution = torch.linalg.solve(normal, design.T @ fresh.target)
    least = 0.5 * (fresh.target - design @ solution).square().sum() + 0.5 * ridge * solution.square().sum()
    assert step.costs[-1] == pytest.approx(least.item(), rel=1e-8)


def test_gradient_is_autograds():
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(5, width, dtype=torch.float64, generator=generator) for width in (3, 4))
    bond = torch.randn(3, 2, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    target = torch.randn(5, 2, dtype=torch.float64, generator=generator)
    error = target - outputs_of(left, bond, right)
    (0.5 * error.square().sum()).backward()
    torch.testing.assert_close(gradient_of(left, error.detach(), right), -bond.grad)
    torch.testing.assert_close(
        outputs_of(left, bond, right), torch.einsum("ba,aoc,bc->bo", left, bond, right), rtol=1e-12, atol=1e-12
    )


def test_rows_in_parts_give_the_same(monkeypatch):
    whole = [step.costs for step in sweeps().to_the_right()]
    monkeypatch.setattr(dmrg, "PRODUCTS_AT_ONCE", 40)
    for found, expected in zip((step.costs for step in sweeps().to_the_right()), whole, strict=True):
        assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("bond_dim", [1, 3, 7])
def test_truncation_error_is_the_discarded_weight(bond_dim):
    matrix = torch.randn(7, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    isometry, rest, discarded = split(matrix, bond_dim, cutoff=0.0)
    lost = (matrix - isometry @ rest).square().sum() / matrix.square().sum()
    assert discarded == pytest.approx(lost.item(), abs=1e-12)
    values = torch.linalg.svdvals(matrix).square()
    assert discarded == pytest.approx((values[bond_dim:].sum() / values.sum()).item(), abs=1e-12)
    assert rest.shape == (bond_dim, 12)


def test_the_bond_adapts_to_the_cutoff():
    values = torch.tensor([1.0, 0.1, 0.01, 0.001], dtype=torch.float64)
    assert len(split(torch.diag(values), 4, cutoff=1e-3)[1]) == 2
    assert len(split(torch.diag(values), 4, cutoff=1e-7)[1]) == 4
    assert len(split(torch.zeros(4, 4), 4, cutoff=0.0)[1]) == 1
    bonds = [step.kept for step in sweeps(bond_dim=5, cutoff=1e-6).to_the_right()]
    assert bonds[0] == 2 and max(bonds) <= 5  # noqa: PT018 (one site of width 2 left of the first bond)


def test_a_start_spans_its_rows():
    """With room for all of them, the right environments keep every row's length."""
    x = site_vectors(5, 4)
    train = spanned(x, 2, 100, torch.arange(4))
    right = torch.ones(4, 1, dtype=torch.float64)
    for n in range(4, 0, -1):
        right = train.rightward(x[n], right, n)
    lengths = right.norm(dim=1) / math.prod(train.gains)
    torch.testing.assert_close(lengths, torch.ones(4, dtype=torch.float64))
