"""The source's trees, one class against the others, on images small enough to contract by brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from restt import baselines
from restt_baselines.ttn import (
    IsometricTree,
    OverlapSweeps,
    balanced,
    children,
    coherent,
    layer_side,
    nearest_isometry,
    product,
    unit,
)
from tests.restt_baselines.cases import digits, score_after_fit
from tests.restt_baselines.image_cases import images

ROWS, SIDE = 12, 8


def new_sweeps() -> OverlapSweeps:
    generator = torch.Generator().manual_seed(0)
    x = coherent(torch.rand(SIDE**2, ROWS, generator=generator, dtype=torch.float64), math.pi / 2, 3)
    tree = IsometricTree.random(SIDE, 3, 4, generator)
    tree = IsometricTree([[tensor.double() for tensor in layer] for layer in tree.tensors])
    return OverlapSweeps(tree, x, torch.eye(2, dtype=torch.float64)[torch.arange(ROWS) % 2])


def outputs_with(sweeps: OverlapSweeps, layer: int, node: int, vector: torch.Tensor) -> torch.Tensor:
    """The tree's outputs (B, O), of length 1, if the vector of one node were another for every image."""
    vectors = list(sweeps.vectors[layer + 1])
    vectors[node] = vector.expand(ROWS, -1)
    for tensors in sweeps.tree.tensors[layer + 1 :]:
        below = [children(parent, layer_side(tensors)) for parent in range(len(tensors))]
        vectors = [product([vectors[n] for n in four]) @ tensor.T for four, tensor in zip(below, tensors, strict=True)]
    return unit(vectors[0])


def test_an_environment_is_made_of_the_outputs_of_all_basis_states():
    sweeps = new_sweeps()
    for layer, node in ((0, 0), (0, 7), (0, 13), (1, 2)):
        tensor = sweeps.tree.tensors[layer][node]
        expected = [
            (outputs_with(sweeps, layer, node, state) * sweeps.target).sum(1)
            for state in torch.eye(len(tensor), dtype=torch.float64)
        ]
        torch.testing.assert_close(sweeps.pull(layer, node), torch.stack(expected, dim=1))
    assert sweeps.pull(2, 0) is sweeps.target


def test_a_sweep_takes_the_nearest_isometries_from_the_pixels_up():
    sweeps = new_sweeps()
    wide = product([sweeps.vectors[0][n] for n in children(0, 4)])
    expected = nearest_isometry(sweeps.pull(0, 0).T @ wide)
    overlaps = list(sweeps.sweep())
    assert len(overlaps) == 16 + 4 + 1
    torch.testing.assert_close(sweeps.tree.tensors[0][0], expected)
    for tensors in sweeps.tree.tensors:
        for tensor in tensors:
            torch.testing.assert_close(tensor @ tensor.T, torch.eye(len(tensor), dtype=torch.float64))


def test_the_vectors_kept_are_those_of_the_tree():
    sweeps = new_sweeps()
    list(sweeps.sweep())
    for kept, layer in zip(sweeps.vectors[1:], sweeps.tree.layers(sweeps.vectors[0]), strict=True):
        for found, expected in zip(kept, layer, strict=True):
            torch.testing.assert_close(found, expected)


def test_the_last_tensor_of_a_sweep_makes_its_linear_cost_largest():
    """Of the top tensor alone, before outputs are brought to length 1: the source's cost is linear in it."""
    sweeps = new_sweeps()
    list(sweeps.sweep())
    environment = sweeps.target.T @ product(sweeps.vectors[2])
    found = (sweeps.tree.tensors[2][0] * environment).sum()
    assert found.item() == pytest.approx(torch.linalg.svdvals(environment).sum().item())


@pytest.mark.parametrize("width", [2, 3, 5])
def test_site_vectors_are_spin_coherent_states(width):
    values = torch.rand(2, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    first, second = coherent(values, 1.3, width)
    expected = (1.3 * (values[0] - values[1])).cos() ** (width - 1)
    torch.testing.assert_close((first * second).sum(1), expected)


def test_a_tree_sees_as_many_of_its_class_as_of_the_others():
    labels = torch.arange(400) % 5
    rows = balanced(labels, 2, torch.Generator().manual_seed(0))
    assert torch.bincount(labels[rows]).tolist() == [20, 20, 80, 20, 20]
    assert len(rows.unique()) == len(rows)
    assert balanced(labels, 2, torch.Generator().manual_seed(1)).tolist() != rows.tolist()


def test_learns_digits():
    estimator = baselines.make("ttn", side=8, feature_dim=3, bond_dim=6, sweeps=4, random_state=0, device="cpu")
    assert score_after_fit(estimator, digits()) > 0.9
    assert len(estimator.module_.trees) == 10
    losses = [record.train_loss[0] for record in estimator.history_]
    assert losses[-1] < losses[0]


def test_the_class_is_that_of_the_largest_first_output_and_seeds_decide():
    X, y = images(side=6)
    settings = {"side": 4, "feature_dim": 2, "bond_dim": 3, "sweeps": 2, "device": "cpu"}
    first, second, other = (
        baselines.make("ttn", random_state=seed, **settings).fit(X.numpy(), y.numpy()) for seed in (0, 0, 1)
    )
    found = first.decision_function(X.numpy())
    tops = [
        list(tree.layers(list(first.feature_map()(first.inputs_(X.numpy())))))[-1][0][:, 0]
        for tree in first.module_.trees
    ]
    np.testing.assert_allclose(found, torch.stack(tops, dim=1).numpy(), atol=1e-6)
    assert (first.predict(X.numpy()) == found.argmax(1)).all()
    assert np.array_equal(found, second.decision_function(X.numpy()))
    assert not np.array_equal(found, other.decision_function(X.numpy()))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"side": 6}, "side must be a power of 2, got 6"),
        ({"bond_dim": 0}, "bond_dim must be at least 1"),
        ({"feature_dim": 1}, "feature_dim must be at least 2"),
        ({"angle": 0.0}, "angle must be"),
    ],
)
def test_bad_settings_are_named(settings, words):
    X, y = images()
    with pytest.raises(ValueError, match=words):
        baselines.make("ttn", sweeps=1, device="cpu", **settings).fit(X.numpy(), y.numpy())
