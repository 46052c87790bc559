"""The tree on images small enough to contract by brute force."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from restt import baselines
from restt.baselines.tensor.isometric_tree import IsometricTree, TreeSweeps, children, nearest_isometry
from tests.baselines.cases import digits, score_after_fit
from tests.baselines.image_cases import images

ROWS, OUTPUTS = 30, 3


def site_vectors(side: int = 4) -> torch.Tensor:
    angles = torch.rand(side * side, ROWS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.stack([angles.cos(), angles.sin()], dim=-1)


def targets() -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.arange(ROWS) % OUTPUTS, OUTPUTS).double()


def new_tree(side: int = 4) -> IsometricTree:
    tree = IsometricTree.random(side, 2, 3, OUTPUTS, torch.Generator().manual_seed(1))
    return IsometricTree([[tensor.double() for tensor in layer] for layer in tree.tensors])


def assert_isometric(tree: IsometricTree) -> None:
    for layer in tree.tensors:
        for tensor in layer:
            identity = torch.eye(len(tensor), dtype=tensor.dtype)
            assert (tensor @ tensor.T - identity).abs().max() < 1e-6


def test_output_is_the_contraction_of_all_tensors():
    tree, x = new_tree(), site_vectors()
    quarters = []
    for tensor, places in zip(
        tree.tensors[0], ((0, 1, 4, 5), (2, 3, 6, 7), (8, 9, 12, 13), (10, 11, 14, 15)), strict=True
    ):
        quarters.append(torch.einsum("oijkl,bi,bj,bk,bl->bo", tensor.view(3, 2, 2, 2, 2), *(x[p] for p in places)))
    top = tree.tensors[1][0].view(OUTPUTS, 3, 3, 3, 3)
    torch.testing.assert_close(tree(x), torch.einsum("oijkl,bi,bj,bk,bl->bo", top, *quarters))


def test_children_tile_the_layer_below():
    assert sorted(child for node in range(16) for child in children(node, 4)) == list(range(64))
    assert children(0, 1) == [0, 1, 2, 3]


@pytest.mark.parametrize("damping", [0.0, 5.0])
def test_tensors_stay_isometric(damping):
    tree = new_tree(8)
    sweeps = TreeSweeps(tree, site_vectors(8), targets())
    assert_isometric(tree)
    for _ in range(3):
        list(sweeps.sweep())
        assert_isometric(tree)
        if damping:
            sweeps.linearise(5.0, damping)


def test_environments_are_gradients_and_no_update_lowers_the_overlap():
    tree, x, target = new_tree(), site_vectors(), targets()
    sweeps = TreeSweeps(tree, x, target)
    overlaps = [float((tree(x) * target).sum())]
    before = [[tensor.clone() for tensor in layer] for layer in tree.tensors]
    for _ in sweeps.sweep():
        overlaps.append(float((tree(x) * target).sum()))
    assert all(after >= lower - 1e-12 for lower, after in pairwise(overlaps))
    assert overlaps[-1] > 1.5 * abs(overlaps[0])
    # The first tensor visited is updated by the gradient of the overlap at the start.
    leaf = before[0][0].clone().requires_grad_()
    start = IsometricTree([[leaf, *before[0][1:]], before[1]])
    (start(x) * target).sum().backward()
    first = TreeSweeps(IsometricTree([list(before[0]), list(before[1])]), x, target)
    next(first.sweep())
    torch.testing.assert_close(first.tree.tensors[0][0], nearest_isometry(leaf.grad))


def test_linearised_pull_is_the_gradient_of_the_cross_entropy():
    sweeps = TreeSweeps(new_tree(), site_vectors(), targets())
    top = sweeps.vectors[-1][0].clone()
    length = top.norm(dim=1, keepdim=True)
    sharpness = 3.0
    logits = (top / length).requires_grad_()
    loss = -(targets() * (sharpness * logits).log_softmax(1)).sum()
    loss.backward()
    sweeps.linearise(sharpness, 1.0)
    torch.testing.assert_close(sweeps.pull, -logits.grad / sharpness / length)


def test_a_damped_update_moves_less():
    moved = []
    for damping in (1.0, 100.0):
        tree = new_tree()
        sweeps = TreeSweeps(tree, site_vectors(), targets())
        sweeps.damping = damping
        before = tree.tensors[1][0].clone()
        list(sweeps.sweep())
        moved.append(float((tree.tensors[1][0] - before).norm()))
    assert moved[1] < 0.1 * moved[0]


def test_nearest_isometry_has_the_largest_overlap():
    generator = torch.Generator().manual_seed(0)
    environment = torch.randn(3, 7, dtype=torch.float64, generator=generator)
    best = (nearest_isometry(environment) * environment).sum()
    assert best.item() == pytest.approx(torch.linalg.svdvals(environment).sum().item())
    for _ in range(20):
        other = nearest_isometry(torch.randn(3, 7, dtype=torch.float64, generator=generator))
        assert (other * environment).sum() < best


def test_learns_digits():
    estimator = baselines.make("ttn", side=8, bond_dim=5, sweeps=20, random_state=0, device="cpu")
    assert score_after_fit(estimator, digits()) > 0.9
    assert_isometric(estimator.model_)
    assert len(estimator.history_) == estimator.n_iter_ == 20


def test_images_of_another_size_are_resized_and_seeds_decide():
    X, y = images(side=6)
    settings = {"side": 4, "bond_dim": 3, "sweeps": 3, "device": "cpu"}
    first, second, other = (
        baselines.make("ttn", random_state=seed, **settings).fit(X.numpy(), y.numpy()) for seed in (0, 0, 1)
    )
    assert first.site_vectors(X).shape == (16, 40, 2)
    assert np.array_equal(first.decision_function(X.numpy()), second.decision_function(X.numpy()))
    assert not np.array_equal(first.decision_function(X.numpy()), other.decision_function(X.numpy()))
    np.testing.assert_allclose(first.predict_proba(X.numpy()).sum(1), 1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"side": 6}, "side must be a power of 2, got 6"),
        ({"bond_dim": 0}, "bond_dim must be at least 1"),
        ({"sharpness": 0.0}, "sharpness must be"),
        ({"damping": -1.0}, "damping must be"),
        ({"side": 2, "bond_dim": 1}, None),
    ],
)
def test_bad_settings_are_named(settings, words):
    X, y = images()
    estimator = baselines.make("ttn", sweeps=1, device="cpu", **settings)
    if words is None:
        assert estimator.fit(X.numpy(), y.numpy()).predict(X.numpy()).shape == (40,)
        return
    with pytest.raises(ValueError, match=words):
        estimator.fit(X.numpy(), y.numpy())


def test_more_classes_than_the_last_tensor_is_wide():
    with pytest.raises(ValueError, match="outputs must be at most 1"):
        IsometricTree.random(4, 2, 1, 3, torch.Generator())
