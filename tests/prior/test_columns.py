from __future__ import annotations

import numpy as np
import pytest
import torch

from restt.prior.columns import LevelColumns, NumberColumns, side_by_side, upper_blocks
from restt.prior.evidence import column_slices
from restt.prior.kernels import BEND, JUMPING, SMOOTH, make_kernel, measure, reshaped
from restt.prior.sites import fit_sites

RNG = np.random.default_rng(0)
ROWS = 90  # more than a block
NUMBERS = np.column_stack(
    [
        RNG.standard_normal(ROWS),
        RNG.integers(0, 4, ROWS),
        np.where(RNG.random(ROWS) < 0.2, np.nan, RNG.lognormal(size=ROWS)),
        RNG.integers(0, 2, ROWS),
        np.where(RNG.random(ROWS) < 0.2, np.nan, RNG.integers(0, 3, ROWS)),
        np.full(ROWS, 7.0),
        np.full(ROWS, np.nan),
    ]
)
NUMBERS[5, 1] = -1  # a level that is not known
LEVELS = [None, 4, None, None, 3, None, None]
CPU = torch.device("cpu")
SHAPES = [(), (JUMPING,), (SMOOTH, BEND), (JUMPING, 0.0, True)]


def problem(*shape):
    weights = RNG.random(ROWS) + 0.5
    sites = fit_sites(NUMBERS, weights, LEVELS)
    states = [site.vectors(column) for site, column in zip(sites, NUMBERS.T, strict=True)]
    given = torch.from_numpy(weights)
    kernels = tuple(make_kernel(site, measure(site, x, given)) for site, x in zip(sites, states, strict=True))
    kernels = reshaped(kernels, *shape)
    parts = column_slices(kernels)
    return kernels, states, parts, RNG.normal(-0.3, 0.4, parts[-1].stop)


def test_numbers_of_like_width_and_all_categories_are_together():
    kernels, states, parts, _ = problem()
    found = side_by_side(kernels, states, parts)
    assert sorted(len(one.places) for one in found if isinstance(one, NumberColumns)) == [1, 1, 1, 2]
    assert [len(one.places) for one in found if isinstance(one, LevelColumns)] == [2]
    assert sorted(np.concatenate([one.places.ravel() for one in found])) == list(range(2, parts[-1].stop))


@pytest.mark.parametrize("shape", SHAPES)
def test_factors_are_those_of_each_kernel(shape):
    kernels, states, parts, theta = problem(*shape)
    rows, others = slice(10, 30), slice(25, 80)
    expected = {
        part.start: kernel.factor(column[rows], column[others], theta[part])
        for kernel, column, part in zip(kernels, states, parts, strict=True)
    }
    for one in side_by_side(kernels, states, parts):
        one.set(theta)
        found = torch.full((len(one.places), 20, 55), torch.nan, dtype=torch.float64)
        one.factors(rows, others, found)
        for place, factor in zip(one.places[:, 0], found, strict=True):
            torch.testing.assert_close(factor, expected[place], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_slopes_match_differences(shape):
    kernels, states, parts, theta = problem(*shape)
    weight = torch.from_numpy(RNG.standard_normal((ROWS, ROWS)))
    weight = weight + weight.T
    for kernel, column, part in zip(kernels, states, parts, strict=True):
        (alone,) = side_by_side([kernel], [column], [part])
        alone.set(theta)
        for rows, others in upper_blocks(ROWS, CPU):
            block = weight[rows, others].clone()
            block[:, len(block) :] *= 2
            alone.pull(block[None], rows, others)
        slopes = alone.slopes((weight * kernel.factor(column, column, theta[part])).sum())
        for k, slope in enumerate(slopes.tolist()):
            step = np.zeros(len(slopes))
            step[k] = 1e-5
            up, down = (kernel.factor(column, column, theta[part] + sign * step) for sign in (1, -1))
            assert slope == pytest.approx(((up - down) * weight).sum().item() / 2e-5, rel=1e-5, abs=1e-6)


def test_columns_side_by_side_have_slopes_of_their_own():
    kernels, states, parts, theta = problem()
    for one in side_by_side(kernels, states, parts):
        weights = torch.from_numpy(RNG.standard_normal((len(one.places), ROWS, ROWS)))
        everything = slice(0, ROWS)
        one.set(theta)
        one.pull(weights, everything, everything)
        found = one.slopes(torch.zeros((), dtype=torch.float64)).reshape(one.places.shape)
        for place, weight, slopes in zip(one.places, weights, found, strict=True):
            n = [part.start for part in parts].index(place[0])
            alone = side_by_side([kernels[n]], [states[n]], [parts[n]])[0]
            alone.set(theta)
            alone.pull(weight[None], everything, everything)
            torch.testing.assert_close(slopes, alone.slopes(torch.zeros((), dtype=torch.float64)))


def test_a_gpu_takes_all_rows_at_once_where_the_factors_of_all_columns_fit():
    gpu = torch.device("cuda")
    assert upper_blocks(2_000, gpu, columns=20) == [(slice(0, 2_000), slice(0, 2_000))]
    blocks = upper_blocks(2_000, gpu, columns=500)
    assert len(blocks) > 1
    assert max((rows.stop - rows.start) * 2_000 * 500 for rows, _ in blocks) <= 2**27


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 200])
@pytest.mark.parametrize("device", [CPU, torch.device("cuda")])
def test_blocks_hold_everything_from_the_diagonal_on_once(rows, device):
    seen = torch.zeros(rows, rows)
    for part, others in upper_blocks(rows, device, columns=10_000):
        assert part.start == others.start
        seen[part, others] += 1
    assert (seen.triu() == torch.ones(rows, rows).triu()).all()
    assert not (seen > 1).any()
