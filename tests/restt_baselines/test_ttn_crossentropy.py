"""The tree on images small enough to contract by brute force."""

from __future__ import annotations

from itertools import count, pairwise

import numpy as np
import pytest
import torch

from restt import baselines
from restt_baselines.tensor.isometric_tree import IsometricTree, children, nearest_isometry
from restt_baselines.tensor.tree_sweeps import SHARED_LENGTH, STEP_CONTROL, TreeSweeps
from tests.restt_baselines.cases import digits, score_after_fit
from tests.restt_baselines.image_cases import images

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


def copied(tree: IsometricTree) -> IsometricTree:
    return IsometricTree([[tensor.clone() for tensor in layer] for layer in tree.tensors])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_stay_isometric(dtype):
    tree = IsometricTree([[tensor.to(dtype) for tensor in layer] for layer in new_tree(8).tensors])
    sweeps = TreeSweeps(tree, site_vectors(8).to(dtype), targets().to(dtype), updates=2)
    assert_isometric(tree)
    for _ in range(10):
        *_, _ = sweeps.by_overlap()
        assert_isometric(tree)
    for _ in range(10):
        *_, _ = sweeps.by_entropy()
        assert_isometric(tree)


def test_environments_are_gradients_and_no_update_lowers_the_overlap():
    tree, x, target = new_tree(), site_vectors(), targets()
    sweeps = TreeSweeps(tree, x, target)
    overlaps = [float((tree(x) * target).sum())]
    before = [[tensor.clone() for tensor in layer] for layer in tree.tensors]
    for _ in sweeps.by_overlap():
        overlaps.append(float((tree(x) * target).sum()))
    assert all(after >= lower - 1e-12 for lower, after in pairwise(overlaps))
    assert overlaps[-1] > 1.5 * abs(overlaps[0])
    # The first tensor visited is updated by the gradient of the overlap at the start.
    leaf = before[0][0].clone().requires_grad_()
    start = IsometricTree([[leaf, *before[0][1:]], before[1]])
    (start(x) * target).sum().backward()
    first = TreeSweeps(IsometricTree([list(before[0]), list(before[1])]), x, target)
    next(first.by_overlap())
    torch.testing.assert_close(first.tree.tensors[0][0], nearest_isometry(leaf.grad))


def entropy(tree: IsometricTree, x: torch.Tensor, sharpness: float) -> torch.Tensor:
    out = tree(x)
    square = out.norm(dim=1, keepdim=True) ** 2
    logits = sharpness * out / (square + SHARED_LENGTH**2 * square.mean()).sqrt()
    return torch.nn.functional.cross_entropy(logits, targets(), reduction="sum")


@pytest.mark.parametrize("damping", [0.1, 10.0])
@pytest.mark.parametrize("sharpness", [3.0, 30.0])
def test_no_update_raises_the_cross_entropy(sharpness, damping):
    """Of the tree itself, after every tensor: with a damping too small for the first updates as well."""
    tree, x = new_tree(8), site_vectors(8)
    sweeps = TreeSweeps(tree, x, targets(), sharpness=sharpness, damping=damping)
    costs = [float(entropy(tree, x, sharpness))]
    for _ in range(3):
        for cost in sweeps.by_entropy():
            costs.append(float(entropy(tree, x, sharpness)))
            assert float(cost) == pytest.approx(costs[-1], rel=1e-10)
    assert all(after <= before * (1 + 1e-12) for before, after in pairwise(costs))
    assert costs[-1] < 0.8 * costs[0]


def drift(monkeypatch, rise: float) -> None:
    """Every cost that is compared comes out larger than the one before by ``rise``; their gradients are as they are."""
    times, entropy_of = count(), TreeSweeps.entropy
    monkeypatch.setattr(TreeSweeps, "entropy", lambda self, outputs: entropy_of(self, outputs) + rise * next(times))


def test_updates_without_step_control_raise_it(monkeypatch):
    """What is refused would have been worse: the rule above is not met by itself."""
    drift(monkeypatch, -1e6)
    tree, x = new_tree(8), site_vectors(8)
    sweeps = TreeSweeps(tree, x, targets(), sharpness=30.0, damping=0.1)
    costs = [float(entropy(tree, x, 30.0)) for _ in range(3) for _ in sweeps.by_entropy()]
    assert any(after > before * 1.01 for before, after in pairwise(costs))


def test_an_environment_is_the_gradient_of_the_cross_entropy():
    """Of each of the first layer's and the last tensor, with the others as they are: by autograd."""
    tree, x, sharpness, damping = new_tree(), site_vectors(), 3.0, 1e3
    sweeps = TreeSweeps(tree, x, targets(), sharpness=sharpness, damping=damping)
    steps = sweeps.by_entropy()
    for layer, node in ((0, 0), (0, 1), (0, 2), (0, 3), (1, 0)):
        start = copied(tree)
        tensor = start.tensors[layer][node].requires_grad_()
        (gradient,) = torch.autograd.grad(entropy(start, x, sharpness), tensor)
        unit = gradient / gradient.norm() * len(tensor) ** 0.5
        next(steps)
        expected = nearest_isometry(damping * tensor.detach() - unit)
        torch.testing.assert_close(tree.tensors[layer][node], expected)


def test_a_refused_update_raises_the_damping_and_changes_nothing(monkeypatch):
    drift(monkeypatch, 1e6)
    tree = new_tree()
    sweeps = TreeSweeps(tree, site_vectors(), targets(), damping=1.0)
    before = copied(tree)
    *_, _ = sweeps.by_entropy()
    for old, new in zip(before.tensors, tree.tensors, strict=True):
        assert all(map(torch.equal, old, new))
    assert {damping for layer in sweeps.damping for damping in layer} == {STEP_CONTROL["grow"] ** STEP_CONTROL["tries"]}
    for _ in range(20):
        *_, _ = sweeps.by_entropy()
    assert {damping for layer in sweeps.damping for damping in layer} == {STEP_CONTROL["most"]}


def test_sites_that_never_vary_and_rows_without_an_output_do_no_harm():
    x = site_vectors(8)
    x[:16] = torch.tensor([1.0, 0.0])
    x[:, 0] = 0.0
    tree = new_tree(8)
    sweeps = TreeSweeps(tree, x, targets())
    costs = [float(cost) for _ in range(5) for cost in sweeps.by_entropy()]
    assert all(after <= before * (1 + 1e-12) for before, after in pairwise(costs))
    assert_isometric(tree)


def test_nearest_isometry_has_the_largest_overlap():
    generator = torch.Generator().manual_seed(0)
    environment = torch.randn(3, 7, dtype=torch.float64, generator=generator)
    best = (nearest_isometry(environment) * environment).sum()
    assert best.item() == pytest.approx(torch.linalg.svdvals(environment).sum().item())
    for _ in range(20):
        other = nearest_isometry(torch.randn(3, 7, dtype=torch.float64, generator=generator))
        assert (other * environment).sum() < best


def test_learns_digits():
    estimator = baselines.make("ttn-crossentropy", side=8, bond_dim=4, sweeps=10, random_state=0, device="cpu")
    assert score_after_fit(estimator, digits()) > 0.9
    assert_isometric(estimator.model_)
    assert len(estimator.history_) == estimator.n_iter_ == 10
    losses = [record.train_loss[0] for record in estimator.history_[estimator.linear_sweeps :]]
    assert all(after <= before * (1 + 1e-5) for before, after in pairwise(losses))  # in float32


def test_images_of_another_size_are_resized_and_seeds_decide():
    X, y = images(side=6)
    settings = {"side": 4, "bond_dim": 3, "sweeps": 3, "device": "cpu"}
    first, second, other = (
        baselines.make("ttn-crossentropy", random_state=seed, **settings).fit(X.numpy(), y.numpy())
        for seed in (0, 0, 1)
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
        ({"damping": 0.0}, "damping must be"),
        ({"updates": 0}, "updates must be at least 1"),
        ({"side": 2, "bond_dim": 1}, None),
    ],
)
def test_bad_settings_are_named(settings, words):
    X, y = images()
    estimator = baselines.make("ttn-crossentropy", sweeps=1, device="cpu", **settings)
    if words is None:
        assert estimator.fit(X.numpy(), y.numpy()).predict(X.numpy()).shape == (40,)
        return
    with pytest.raises(ValueError, match=words):
        estimator.fit(X.numpy(), y.numpy())


def test_more_classes_than_the_last_tensor_is_wide():
    with pytest.raises(ValueError, match="outputs must be at most 1"):
        IsometricTree.random(4, 2, 1, 3, torch.Generator())
