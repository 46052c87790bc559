"""Grids of columns and the steps that all sweeps share, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from restt.explain.columns import grid_values, module_grid
from restt.explain.distillation import _between, _points
from restt.explain.sweeps import MEMORY, legendre, row_chunks, slices, whitening
from restt.explain.trees.boxes import Column, Sets
from restt.explain.trees.model import _all_values
from restt.explain.trees.reader import Tree
from tests.explain import brute


def test_values_of_a_grid_are_numbers_or_places_of_levels() -> None:
    values, codes = grid_values(["v", None, "u", np.nan], ["u", "v"])
    assert values[0] == "v"
    np.testing.assert_array_equal(codes, [1, np.nan, 0, np.nan])
    assert [part.tolist() for part in grid_values(2, None)] == [[2.0], [2.0]]
    assert grid_values("u", ["u"])[1].tolist() == [0.0]
    with pytest.raises(ValueError, match=r"grid has 'w', which is not one of the levels \['u'\]"):
        grid_values(["w"], ["u"])
    with pytest.raises(TypeError, match=r"grid must be numbers for the size, got \['w'\]"):
        grid_values(["w"], None, "the size")


def test_a_modules_grid_is_of_vectors_padded_to_its_width() -> None:
    module = brute.random_module(3, [2, 1, 3])
    rows = torch.tensor([[[1.0, 2, 0], [5, 0, 0], [1, 2, 3]], [[0.0, 2, 0], [4, 0, 0], [1, 2, 3]]]).double()
    places, vectors = module_grid(module, 0, None, rows)
    assert (places.tolist(), vectors.tolist()) == ([0, 1], [[0, 2, 0], [1, 2, 0]])
    assert module_grid(module, 1, None, rows)[0].tolist() == [4, 5]
    assert module_grid(module, 2, None, rows)[1].tolist() == [[1, 2, 3]]
    assert module_grid(module, 1, [7.0, 8.0], rows)[1].tolist() == [[7, 0, 0], [8, 0, 0]]
    assert module_grid(module, 0, [[7.0, 8.0, 9.0]], rows)[1].tolist() == [[7, 8, 0]]
    assert module_grid(module, 1, [[7.0], [8.0]], rows)[0].tolist() == [7, 8]  # as a column too
    for wrong in ([7.0], [[7.0]], [[[7.0, 8.0]]]):
        with pytest.raises(ValueError, match=r"grid must be vectors of shape \(G, 2\) of site 0"):
            module_grid(module, 0, wrong, rows)


def test_rows_come_in_slices_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MEMORY, "cpu", 10)
    cpu = torch.device("cpu")
    assert [len(list(row_chunks(6, numbers, cpu))) for numbers in (0, 1, 5, 6, 11)] == [1, 1, 3, 6, 6]
    assert list(slices(0, 3)) == []


def test_nodes_integrate_up_to_their_degree() -> None:
    nodes, weights = legendre(3, torch.zeros(()).double())
    for degree in range(7):
        integral = float((weights * nodes**degree).sum())
        assert (abs(integral - 1 / (degree + 1)) < 1e-12) is (degree < 6)


def test_whitening_leaves_out_directions_that_do_not_vary() -> None:
    covariances = torch.tensor([[[4.0, 4.0], [4.0, 4.0]], [[2.0, 0.0], [0.0, 3.0]]]).double()
    mixes, unmixes = whitening(covariances)
    assert [mix.shape[1] for mix in mixes] == [1, 2]
    for covariance, mix, unmix in zip(covariances, mixes, unmixes, strict=True):
        torch.testing.assert_close(mix @ mix.T, covariance)
        torch.testing.assert_close(unmix.T @ mix, torch.eye(mix.shape[1]).double())


def test_points_between_rows_have_any_number_of_columns_of_each() -> None:
    places = _between(50, 3, 2000, np.random.default_rng(0))
    assert (places.shape, places.min(), places.max()) == ((2000, 3), 0, 49)
    assert all(len(set(row)) <= 2 for row in places.tolist())
    pure = np.mean([len(set(row)) == 1 for row in places.tolist()])
    assert pure == pytest.approx(0.51, abs=0.03)  # 0 and 3 columns of one of them, or twice the same row
    table = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert _points(table, np.array([[1, 0], [0, 0], [1, 0]])).tolist() == [[3, 2], [1, 2]]


def test_states_of_a_column_are_bins_up_to_each_threshold_and_codes() -> None:
    numbers = Column(np.array([1.0, 2.0]), False)
    assert numbers.states(np.array([0.0, 1.0, 1.5, 2.0, 9.0, np.nan])).tolist() == [0, 0, 1, 1, 2, 3]
    assert (numbers.width, numbers.every) == (4, (0, 3, True))
    codes = Column(np.array([1.0, 4.0]), True)
    assert codes.states(np.array([1.0, 2.0, 4.0, 9.0, np.nan])).tolist() == [0, 2, 1, 2, 3]
    assert codes.every == frozenset(range(4))


def node(threshold: float = 0.0, codes: dict[int, np.ndarray] | None = None, left: bool = True, **named: bool) -> Tree:
    one = np.zeros(1, dtype=int)
    missing = np.array([left])
    return Tree(one, one, one, np.array([threshold]), missing, np.zeros((1, 1)), codes or {}, **named)


def test_a_split_parts_states_between_its_children() -> None:
    numbers = Column(np.array([1.0, 2.0]), False)
    assert numbers.split(node(1.0), 0, (0, 3, True)) == ((0, 1, True), (1, 3, False))
    assert numbers.split(node(2.0, left=False), 0, (0, 3, True)) == ((0, 2, False), (2, 3, True))
    assert numbers.split(node(1.0), 0, (1, 3, False)) == ((0, 0, False), (1, 3, False))
    assert numbers.split(node(2.0, left=False), 0, (0, 2, True)) == ((0, 2, False), (0, 0, True))
    codes = Column(np.array([1.0, 4.0]), True)
    listed = {0: np.array([4])}
    assert codes.split(node(codes=listed), 0, codes.every) == ({1, 3}, {0, 2})
    assert codes.split(node(codes=listed, left=False), 0, codes.every) == ({1}, {0, 2, 3})
    assert codes.split(node(codes=listed, listed_left=False), 0, codes.every) == ({0, 2, 3}, {1})


def test_the_mass_of_sets_is_that_of_their_members() -> None:
    low, high, missing = torch.tensor([0, 1, 0]), torch.tensor([2, 3, 0]), torch.tensor([False, True, True])
    sets = Sets(4, low, high, missing)
    members = sets.members(torch.arange(3))
    assert members.tolist() == [[1, 1, 0, 0], [0, 1, 1, 1], [0, 0, 0, 1]]
    x = torch.tensor([[0.1, 0.2, 0.3, 0.4], [1.0, 0.0, 0.0, 0.0]]).double()
    torch.testing.assert_close(sets.seen(x), members @ x.T)
    assert len(sets) == 3


def test_the_values_of_a_column_are_both_sides_of_every_threshold() -> None:
    after = np.nextafter([1.0, 3.0], np.inf).tolist()
    values, states = _all_values(Column(np.array([1.0, 3.0, np.finfo(np.float32).max]), False), None)
    assert values.tolist() == [0.9, 1.0, after[0], 3.0, after[1], 3.1]
    assert states.tolist() == [0, 0, 1, 1, 2, 2]
    assert _all_values(Column(np.array([5.0]), False), None)[0].tolist() == [4.0, 5.0, np.nextafter(5.0, 6.0), 6.0]
    assert _all_values(Column(np.zeros(0), False), None)[0].tolist() == [0.0]
    values, states = _all_values(Column(np.array([0.0, 2.0]), True), ["u", "v", "w"])
    assert (values[:3].tolist(), states.tolist()) == (["u", "w", "other"], [0, 1, 2, 3])
    assert _all_values(Column(np.array([7.0]), True), None)[0][:2].tolist() == [7.0, "other"]
