from __future__ import annotations

import numpy as np
import pytest
import torch

from restt.prior import Site
from restt.prior.sites import fit_sites, hat_map, rows_of

RNG = np.random.default_rng(0)
NUMBERS = np.column_stack(
    [
        RNG.standard_normal(80),
        np.where(RNG.random(80) < 0.2, np.nan, RNG.lognormal(size=80)),
        RNG.integers(0, 4, 80),
        np.where(RNG.random(80) < 0.2, np.nan, RNG.integers(0, 3, 80)),
        np.full(80, 7.0),
        np.full(80, np.nan),
    ]
)
LEVELS = [None, None, 4, 3, None, None]
WEIGHTS = RNG.random(80) + 0.5


def vectors_of(site: Site, column: np.ndarray) -> torch.Tensor:  # (B,) -> (B, I + 1): what was not seen is last
    return rows_of([site], column[:, None]).vectors(0, site.width + 1)


def sites_and_states():
    sites = fit_sites(NUMBERS, WEIGHTS, LEVELS)
    return sites, [vectors_of(site, column) for site, column in zip(sites, NUMBERS.T, strict=True)]


def test_site_vectors_sum_to_one_whatever_the_column_holds():
    sites, states = sites_and_states()
    assert [site.width for site in sites[2:]] == [4, 4, 1, 2]  # knots or levels, missing
    assert [site.missing for site in sites] == [False, True, False, True, False, True]
    for site in sites[:2]:
        assert 28 <= len(site.knots) <= 32
    for vectors in states:
        assert torch.allclose(vectors.sum(1), torch.ones(80, dtype=torch.float64))
        assert (vectors >= 0).all()


def test_missing_values_and_unknown_levels_are_states():
    sites, states = sites_and_states()
    missing = np.isnan(NUMBERS[:, 1])
    assert torch.equal(states[1][:, -2] == 1, torch.from_numpy(missing))
    assert vectors_of(sites[2], np.array([3.0, -1.0, np.nan])).argmax(1).tolist() == [3, 4, 4]
    assert vectors_of(sites[3], np.array([2.0, -1.0, np.nan])).argmax(1).tolist() == [2, 4, 3]
    assert vectors_of(sites[0], np.array([np.nan]))[0, -1] == 1


@pytest.mark.parametrize("scale", [1e30, 1e-300, 1e307])
def test_columns_of_any_size_have_the_same_states(scale):
    column = RNG.standard_normal(50)
    plain, large = (fit_sites(values[:, None], np.ones(50))[0] for values in (column, column * scale))
    assert torch.allclose(vectors_of(plain, column), vectors_of(large, column * scale), atol=1e-6)
    assert np.allclose(plain.positions, large.positions)


@pytest.mark.parametrize("column", [RNG.standard_normal(50).astype(np.float32), np.r_[-1.0, 3.0, np.zeros(48)]])
def test_moved_columns_have_the_same_states(column):
    there, moved = (fit_sites(values[:, None], np.ones(50))[0] for values in (column, column + 512.0))
    assert moved.shift == pytest.approx(there.shift + 512, abs=1e-3)
    assert torch.allclose(vectors_of(there, column), vectors_of(moved, column + 512.0), atol=1e-2)


def test_a_repeated_row_is_a_weight_of_two():
    column = np.round(RNG.standard_normal(60), 1)[:, None]
    weights = np.ones(60)
    weights[7] = 2
    once, twice = fit_sites(column, weights)[0], fit_sites(np.vstack([column, column[7:8]]), np.ones(61))[0]
    assert once.knots == twice.knots
    assert np.allclose(once.positions, twice.positions)


def test_sites_survive_their_configuration():
    import json

    for site in fit_sites(NUMBERS, WEIGHTS, LEVELS, beyond=True):
        config = json.loads(json.dumps(site.to_config()))
        assert Site.from_config(config) == site
        del config["beyond"]  # as in models saved before there was any such knot
        assert Site.from_config(config).beyond == (0, 0)


def test_knots_beyond_the_ends_are_where_new_values_lie():
    rng = np.random.default_rng(1)
    for draw in (rng.standard_normal, rng.random, rng.exponential):  # an exponential's is 2 standard deviations away
        columns = draw(size=(100, 40))
        for column, site in zip(columns.T, fit_sites(columns, np.ones(100), beyond=True), strict=True):
            inside = fit_sites(column[:, None], np.ones(100))[0]
            ends = (int(site.knots[0] < inside.knots[0]), int(site.knots[-1] > inside.knots[-1]))
            assert site.beyond == ends == (1, 1)
            assert (site.knots[1:-1], site.positions[1:-1]) == (inside.knots, inside.positions)
            # The states of rows of the fit are as they were, and straight lines go on.
            assert torch.equal(vectors_of(site, column)[:, 1:-2], vectors_of(inside, column)[:, :-1])
            slopes = np.diff(site.values) / np.diff(site.knots)
            assert np.allclose(slopes, slopes[1])
        new = draw(size=(4000, 40))
        outside = (new < columns.min(0)) | (new > columns.max(0))
        low, high = (
            [s.knots[n] * s.scale + s.shift for s in fit_sites(columns, np.ones(100), beyond=True)] for n in (0, -1)
        )
        assert 0.01 < outside.mean() < 0.04
        assert ((new < low) | (new > high)).sum() < 0.2 * outside.sum()


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(np.tile([0.0, 1, 2, 3, 4], 20), id="of a scale"),
        pytest.param(np.r_[-1e30, np.linspace(-1, 1, 98), 1e30], id="with accidents"),
        pytest.param(np.full(100, 3.0), id="constant"),
    ],
)
def test_a_column_has_no_knots_beyond_an_end_that_is_not_a_tails(column):
    site = fit_sites(column[:, None], np.ones(100), beyond=True)[0]
    assert site == fit_sites(column[:, None], np.ones(100))[0]
    assert site.beyond == (0, 0)


def test_a_row_of_weight_two_at_the_end_is_the_end():
    column = np.random.default_rng(0).standard_normal((50, 1))
    weights = np.where(column[:, 0] == column.max(), 2.0, 1.0)
    once, twice = (
        fit_sites(rows, given, beyond=True)[0]
        for rows, given in ((column, weights), (np.vstack([column, [column.max(0)]]), np.ones(51)))
    )
    assert once.beyond == twice.beyond == (1, 0)
    assert np.allclose(once.knots, twice.knots)


def test_the_map_of_all_sites_gives_the_same_hats():
    sites, states = sites_and_states()
    hats, shift, scale = hat_map(sites)
    x = torch.from_numpy(NUMBERS).nan_to_num()
    vectors = hats((x - shift) / scale)
    for n, site in enumerate(sites):
        if site.knots is not None:
            present = ~np.isnan(NUMBERS[:, n])
            expected = states[n][present, : len(site.knots)]
            assert torch.allclose(vectors[present, n, : len(site.knots)], expected, atol=1e-12)
