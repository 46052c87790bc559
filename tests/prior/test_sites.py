from __future__ import annotations

import numpy as np
import pytest
import torch

from restt.prior import Site
from restt.prior.sites import _reach, _spread_out, fit_sites, hat_map, rows_of

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
    assert vectors_of(sites[2], np.array([0.0, 3.0, 4.0, -1.0, np.nan])).argmax(1).tolist() == [0, 3, 4, 4, 4]
    assert vectors_of(sites[3], np.array([2.0, -1.0, np.nan])).argmax(1).tolist() == [2, 4, 3]
    assert vectors_of(sites[0], np.array([np.nan]))[0, -1] == 1


@pytest.mark.parametrize("draw", ["random", "exponential"])
def test_knots_are_placed_by_value_and_rank_and_beyond_the_ends_by_the_tails(draw):
    """An even tail ends three mean excesses away, a long one two standard deviations."""
    rng = np.random.default_rng(5)
    column, weights = np.sort(getattr(rng, draw)(size=40)) * 3 + 7, rng.random(40) + 0.5
    site = fit_sites(column[:, None], weights, knots=40, beyond=True)[0]
    share = weights / weights.sum()
    bottom, middle, top = (column[np.argmax(np.cumsum(share) >= level)] for level in (0.05, 0.5, 0.95))
    assert (site.shift, site.scale) == pytest.approx((middle, (top - bottom) / 2), rel=1e-14)
    knots = (column - site.shift) / site.scale
    size = np.sqrt(share @ (knots - share @ knots) ** 2)
    values = (knots - share @ knots) / size
    positions = values / 2 + (np.cumsum(share) - share / 2 - 0.5) * 12**0.5 / 2
    reaches = []
    for ends, given in ((-knots, weights), (knots[::-1], weights[::-1])):
        tail = np.cumsum(given) - given < 0.2 * weights.sum()
        excess = np.average(ends[tail], weights=given[tail]) - ends[~tail][0]
        reaches.append((min(3 * excess, 2 * size), 3 * excess < 2 * size))
    assert [even for _, even in reaches] == [True, draw == "random"]
    (low, _), (high, _) = reaches
    for found, inside, step in (
        (site.knots, knots, 1),
        (site.positions, positions, 0.5 / size),
        (site.values, values, 1 / size),
    ):
        np.testing.assert_allclose(found, [inside[0] - low * step, *inside, inside[-1] + high * step], rtol=1e-12)
    # Of as few rows as twice the outermost five nothing is known beyond the ends.
    few, enough = (fit_sites(column[:count, None], np.ones(count), beyond=True)[0].beyond for count in (9, 10))
    assert (few, enough) == ((0, 0), (1, 1))


def test_where_the_middle_nine_tenths_are_one_value_the_ends_set_the_scale():
    column = np.r_[-1.0, 3.0, np.zeros(48)]
    site = fit_sites(column[:, None], np.ones(50))[0]
    assert (site.shift, site.scale, site.knots) == (1.0, 2.0, (-1.0, -0.5, 1.0))
    standardised = np.array([-1.0, 0.0, 3.0]) - column.mean()
    np.testing.assert_allclose(site.values, standardised / column.std(), rtol=1e-12)


def test_chosen_knots_are_evenly_spaced_where_there_are_values():
    assert _spread_out(np.arange(100.0), 12).tolist() == list(range(0, 100, 9))
    # A gap takes even spots: of 19 from 0 to 105, the last number tried before more than 8 are used, six are.
    assert _spread_out(np.r_[0.0:6.0, 100.0:106.0], 8).tolist() == [0, 3, 5, 6, 7, 11]


def test_a_row_lies_between_two_knots():
    site = Site((0.0, 1.0, 3.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), missing=True, shift=10.0, scale=2.0)
    rows = rows_of([site], np.array([[-5.0], [10.0], [10.5], [12.0], [15.0], [16.0], [99.0], [np.nan]]))
    assert rows.code[:, 0].tolist() == [0, 0, 0, 1, 1, 2, 2, 3]
    assert rows.share[:, 0].tolist() == [0, 0, 0.25, 0, 0.75, 0, 0, 0]


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

    tails = fit_sites(np.r_[np.linspace(-1, 1, 80), 1e30, 2e30][:, None], np.ones(82))  # with two equal values
    for site in (*fit_sites(NUMBERS, WEIGHTS, LEVELS, beyond=True), *tails):
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


def test_a_column_of_one_value_has_its_only_knot_there():
    constant, missing = fit_sites(np.column_stack([np.full(9, 7.0), np.full(9, np.nan)]), np.ones(9))
    assert constant == Site((0.0,), (0.0,), (0.0,), shift=7.0)
    assert missing == Site((0.0,), (0.0,), (0.0,), missing=True)


@pytest.mark.parametrize(
    ("values", "counts", "size", "expected"),
    [
        pytest.param(9 - np.arange(10) ** 0.5, np.ones(10), 9.0, 1.0, id="to the tail's end"),
        pytest.param(-0.1 * np.arange(10.0), np.ones(10), 9.0, 0.9, id="of the five outermost"),
        pytest.param(-0.1 * np.arange(30.0), np.ones(30), 9.0, 3 * 0.35, id="of the outermost fifth"),
        pytest.param(-0.1 * np.arange(10.0), np.ones(10), 0.2, 0.4, id="twice the size"),
        pytest.param(-0.1 * np.arange(10.0), np.r_[1.99, np.ones(9)], 9.0, 3 * 1.995 / 5.99, id="weighted"),
        pytest.param(-0.1 * np.arange(9.0), np.ones(9), 9.0, 0.0, id="too few rows"),
        pytest.param(-0.1 * np.arange(10.0), np.r_[2.0, np.ones(9)], 9.0, 0.0, id="two rows at the end"),
        pytest.param(-np.arange(5.0), np.r_[np.ones(4), 96.0], 9.0, 0.0, id="nothing but outermost rows"),
    ],
)
def test_a_tail_goes_on_for_three_mean_excesses_of_its_outermost_rows(values, counts, size, expected):
    assert _reach(values, counts, size) == pytest.approx(expected, rel=1e-12)


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
    # The range of the fit is without the knots beyond it.
    column = np.random.default_rng(0).standard_normal((50, 1))
    weights = np.where(column[:, 0] == column.max(), 2.0, 1.0)  # a knot below, none above
    site = fit_sites(column, weights, beyond=True)[0]
    range_of_fit = hat_map([site])[0].to_config()["fitted"]
    assert (range_of_fit["low"], range_of_fit["high"]) == ([site.knots[1]], [site.knots[-1]])
