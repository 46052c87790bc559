"""Explanations of diagonal cores do not depend on how states and rows are cut into blocks."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from restt.explain import (
    effect,
    interaction_index,
    order_spectrum,
    prune,
    sobol_indices,
    top_interactions,
)
from restt.explain.products import Products
from restt.explain.sweeps import MEMORY
from tests.explain import brute


def test_small_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module = brute.random_module(4, [2, 1, 3, 2], products=30)
    x, background = brute.random_rows(module, 7, seed=1), brute.random_rows(module, 9, seed=2)

    def explained() -> list[torch.Tensor]:
        sobol = sobol_indices(module, background)
        return [
            order_spectrum(module, x, background),
            interaction_index(module, x, background),
            *(sobol.total, sobol.by_order, sobol.variance),
            *(term.variance for term in top_interactions(module, background, k=15).terms),
            effect(module, [0, 2], background).values,
        ]

    whole = explained()
    for name, value in {"block": 1, "rows": 2, "pairs": 1}.items():
        monkeypatch.setattr(MEMORY, name, value)
    for found, expected in zip(explained(), whole, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_products_are_read_on_the_scale_of_the_decision() -> None:
    module = brute.random_module(3, products=4)
    x, readout, offset = brute.random_rows(module, 5), torch.tensor([[2.0], [-1.0]]).double(), torch.tensor([7.0])
    expected = brute.predictions(module, x) @ readout + offset
    torch.testing.assert_close(Products.of(module, readout, offset.double())(x), expected, rtol=1e-10, atol=1e-10)


def test_a_large_one_is_pruned_within_its_bound() -> None:
    module = brute.random_module(4, 2, products=80, outputs=1)
    for n, table in enumerate(module.tables()):  # products that hardly differ
        table[:] = 1 + 0.1 * table * (n + 1)
    levels = brute.random_rows(module, 4, seed=1, scale=0.5)
    found = prune(module, 1e-3, levels)
    choices = torch.tensor(list(product(range(4), repeat=4)))
    rows = levels[choices, torch.arange(4)]
    ours, theirs = brute.predictions(module, rows), brute.predictions(found.module, rows)
    error = float((ours - theirs).square().mean().sqrt() / ours.std(correction=0))
    assert found.way == "bond"
    assert found.parameters < found.parameters_before
    assert error <= found.error * (1 + 1e-6) + 1e-8 <= 1e-3
