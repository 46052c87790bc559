"""Gaussian processes of the logits: their modes, their kernels, and the train that holds their average."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax

from restt.estimators.candidates import ClassRows, stratified_folds
from restt.estimators.class_settings import ClassSettings
from restt.estimators.processes import Modes, _kinds, learn_processes, process_candidates, relevance
from restt.prior import Settings
from restt.prior.sites import fit_sites, rows_of

SETTINGS = ClassSettings(folds=3, first_iterations=3, iterations=6, process_penalties=(1.0, 1 / 16))
ORDER = (2, 0, 1)


def some_rows(classes: int) -> ClassRows:
    """Two numbers, of which the first decides, and a category, in rows of several weights."""
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.standard_normal((60, 2)), rng.integers(0, 3, 60)])
    cuts = np.quantile(table[:, 0], np.linspace(0, 1, classes + 1)[1:-1])
    numbers = np.digitize(table[:, 0] + 0.3 * rng.standard_normal(60), cuts)
    weights = rng.integers(1, 3, 60).astype(float)
    sites = fit_sites(table, weights, [None, None, 3], knots=8, average=False)
    return ClassRows(
        sites,
        tuple(site.vectors(column) for site, column in zip(sites, table.T, strict=True)),
        rows_of(sites, table),
        numbers,
        weights,
        np.zeros(classes),
        stratified_folds(numbers, 3),
        SETTINGS,
    )


@pytest.fixture(scope="module", params=[2, 3])
def modes(request) -> Modes:
    rows = some_rows(request.param)
    (found,) = process_candidates(rows, learn_processes(rows, Settings()), ORDER)
    return found


def test_a_mode_is_where_the_posterior_is_flat(modes):
    """K α with α = w (y - p)/penalty on the rows that a fold sees, 0 on the others."""
    rows, kind, place, fold = modes.rows, modes.kinds.index("process"), 1, 1
    process = modes.processes[kind][fold]
    covariance = process.covariance(rows.codes).numpy()
    size = covariance.diagonal().mean() - covariance.mean()
    constant = modes.constants[kind * len(SETTINGS.process_penalties) + place, fold]
    logits = covariance @ modes.alphas[kind, place, fold] + constant
    seen = np.where(rows.folds != fold, rows.weights, 0.0)[:, None]
    residuals = seen * (np.eye(rows.classes)[rows.numbers] - softmax(logits, axis=1))
    expected = covariance @ residuals / (size * SETTINGS.process_penalties[place]) + constant
    spread = logits.std()
    assert logits == pytest.approx(expected, abs=0.06 * spread)
    held = rows.folds == fold
    own = modes.held_out[kind * len(SETTINGS.process_penalties) + place]
    assert own[held] == pytest.approx(logits[held], abs=1e-6 * spread + 1e-9)


def test_the_train_is_the_average_of_all_modes_within_the_tolerance(modes):
    rows = modes.rows
    shares = np.linspace(0, 1, len(modes.names))
    (member,) = modes.members(shares)
    assert member.share == pytest.approx(shares.sum())
    expected = np.zeros((len(rows), rows.classes))
    penalties = len(SETTINGS.process_penalties)
    for k, share in enumerate(shares / shares.sum()):
        for fold in range(3):
            process, alpha = modes.processes[k // penalties][fold], modes.alphas[k // penalties, k % penalties, fold]
            logits = process.covariance(rows.codes).numpy() @ alpha + modes.constants[k, fold]
            expected += share * logits / 3
    with torch.no_grad():
        got = member.module(member.view.vectors(rows.ordered(ORDER).states))[0].numpy()
    away = np.sqrt(np.average(((got - expected) ** 2).mean(1), weights=rows.weights))
    assert away <= SETTINGS.tolerance
    assert away == pytest.approx(member.error, rel=1e-3, abs=1e-9)
    assert modes.members(np.zeros(len(shares))) == []


def test_the_column_that_decides_is_the_most_relevant():
    rows = some_rows(2)
    sizes = relevance(learn_processes(rows, Settings()))
    assert sizes.argmax() == 0
    flat = replace(rows, states=(*rows.states[:2], torch.ones_like(rows.states[2])))
    assert flat.varying == (0, 1)


def test_kernels_of_the_same_process():
    rows = some_rows(2)
    kinds = _kinds(learn_processes(rows, Settings())[0])
    assert set(kinds) == {"process", "curves", "straight process", "gaussian"}
    # Along one number, at its knots, products of straight lines are straight.
    knots = torch.tensor(rows.sites[0].values, dtype=torch.float64)
    first = rows.codes.take(torch.zeros(len(knots), dtype=torch.long))
    first.code[:, 0], first.share[:, 0] = torch.arange(len(knots), dtype=torch.int32), 0.0
    line = kinds["straight process"].covariance(first)[0]
    bend = line - line[0] - (knots - knots[0]) / (knots[-1] - knots[0]) * (line[-1] - line[0])
    assert float(bend.abs().max()) < 1e-6 * float(line.abs().max())
    # All columns count the same: another level is a distance of 1.
    category = rows.codes.take(torch.zeros(2, dtype=torch.long))
    category.share.zero_()
    category.code[1, 2] = (category.code[0, 2] + 1) % 3
    gaussian = kinds["gaussian"].covariance(category)
    assert gaussian[0].tolist() == pytest.approx([1.0, np.exp(-1 / 3)])
    # Main effects alone: the mixed difference over two columns is 0.
    corners = rows.codes.take(torch.zeros(4, dtype=torch.long))
    corners.code[:, 0] = torch.tensor([0, 1, 0, 1])
    corners.code[:, 2] = torch.tensor([0, 0, 1, 1])
    corners.share.zero_()
    effects = kinds["curves"].covariance(corners)[0]
    assert float(effects[0] - effects[1] - effects[2] + effects[3]) == pytest.approx(0.0, abs=1e-12)
