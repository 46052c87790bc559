"""The states of each column: knots of a number, levels of a category, and one for missing.

A row's site vector holds how much of each state it is and sums to one. The covariance of a column is a table over its
states, so the prior lives on the site vectors themselves and a train over them loses nothing between the knots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import shown
from restt.features import Hat
from restt.features.base import tensor64
from restt.prior.pairs import Rows
from restt.prior.rows import weighted_quantile

KNOTS = 32
# Scaled values further out are the same to every hat; beyond the tail, straight lines are flat.
_FURTHEST = 1e100
_TAIL = 10.0
# Knot, position and value of a column of one value.
_AT_ZERO = (0.0,), (0.0,), (0.0,)
# How far the knot beyond a column's end is, in mean excesses of the outermost values: that many of them, or this share
# of all where it is more. Of less than twice as many, nothing is known beyond the ends.
_REACH, _OUTERMOST, _OUTERMOST_SHARE = 3.0, 5, 0.2
# At most this many standard deviations of the column away: what goes on with a long tail is seldom a straight line.
_FURTHEST_REACH = 2.0


@dataclass(frozen=True)
class Site:
    """One column's states, in the order of its site vector: knots or levels, then missing.

    A number is read as (x - shift)/scale and spread over the two ``knots`` beside it, as :class:`restt.features.Hat`
    does; ``positions`` are the knots on the scale where the covariance measures distance and ``values`` the knots
    standardised, for straight lines. A category is the number of its level. ``beyond`` counts the knots below and above
    all values of the fit.
    """

    knots: tuple[float, ...] | None
    positions: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    levels: int = 0
    missing: bool = False
    shift: float = 0.0
    scale: float = 1.0
    beyond: tuple[int, int] = (0, 0)

    @property
    def width(self) -> int:
        """Width of the site vector."""
        return (self.levels if self.knots is None else len(self.knots)) + self.missing

    def to_config(self) -> dict[str, Any]:
        """Plain values; floats survive the round trip through JSON exactly."""
        return asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Site:
        """The site that :meth:`to_config` described; ValueError where its parts are none that a fit makes."""
        if not isinstance(config["missing"], bool):
            raise ValueError(f"missing of a site must be true or false, got {shown(config['missing'])}")
        lists: dict[str, Any] = {name: tuple(config[name]) for name in ("positions", "values")}
        lists["beyond"] = tuple(config.get("beyond", (0, 0)))  # models saved before there were any have none
        plain = {name: config[name] for name in ("levels", "missing", "shift", "scale")}
        found = cls(None if config["knots"] is None else tuple(config["knots"]), **lists, **plain)
        for name in ("knots", "positions", "values"):
            places = np.array(getattr(found, name) or (), dtype=np.float64)
            if len(places) != len(found.knots or ()) or not (np.diff(places) >= 0).all() or np.isnan(places).any():
                raise ValueError(f"{name} of a site must be as many growing numbers as it has knots: {shown(places)}")
        return found


def fit_sites(
    numbers: np.ndarray,  # (B, C) float64: NaN is missing, a category the number of its level
    weights: np.ndarray,  # (B,), above 0
    levels: Sequence[int | None] | None = None,  # C: how many levels a category has, None for a column of numbers
    knots: int = KNOTS,
    beyond: bool = False,
) -> tuple[Site, ...]:
    """The states of every column.

    ``beyond``: where the outermost value of a column is a single row's, a new one may lie further out, and there is a
    knot for it, beside the others. No row of the fit is there: what a function is at such a knot, only its covariance
    with the others says.

    >>> sites = fit_sites(np.array([[0.0, 1.0], [np.nan, 0.0], [2.0, 1.0]]), np.ones(3), levels=[None, 2])
    >>> [site.width for site in sites]
    [3, 2]
    """
    if numbers.ndim != 2:
        raise ValueError(f"numbers must have shape (B, C), got {shown(numbers)}")
    kinds = [None] * numbers.shape[1] if levels is None else list(levels)
    if len(kinds) != numbers.shape[1]:
        raise ValueError(f"levels must have one entry for each of the {numbers.shape[1]} columns, got {len(kinds)}")
    return tuple(
        _number_site(column, weights, knots, beyond)
        if count is None
        else Site(None, levels=count, missing=bool(np.isnan(column).any()))
        for column, count in zip(numbers.T, kinds, strict=True)
    )


def hat_map(sites: Sequence[Site]) -> tuple[Hat, Tensor, Tensor]:  # map of N sites, (N,), (N,)
    """The hats of all sites as one feature map, with the shift and scale of each number before it.

    For an encoding that is saved or exported: hats((x - shift)/scale) are the first entries of a number's site vector.
    A category has one knot there, to be replaced by its one-hot vector.
    """
    knots = [[0.0] if site.knots is None else list(site.knots) for site in sites]
    fitted = {
        "low": [row[site.beyond[0]] for row, site in zip(knots, sites, strict=True)],
        "high": [row[-1 - site.beyond[1]] for row, site in zip(knots, sites, strict=True)],
        "second_moment": [1.0] * len(knots),  # at most, since hats are at most 1 and sum to it
        "knots": knots,
    }
    hats = Hat(knots=max(2, *map(len, knots)))
    hats = Hat.from_config({**hats.to_config(), "fitted": fitted})
    return hats, tensor64([site.shift for site in sites]), tensor64([site.scale for site in sites])


def rows_of(sites: Sequence[Site], numbers: np.ndarray) -> Rows:  # N, (B, N)
    """The rows of a table as states and shares.

    What the fit did not see, an unknown category (-1) or a value missing where none was, is one state beyond the last:
    the average of the others.
    """
    codes, shares = np.zeros(numbers.shape, np.int32), np.zeros(numbers.shape)
    for n, (site, column) in enumerate(zip(sites, numbers.T, strict=True)):
        absent = np.isnan(column)
        state = site.width - 1 if site.missing else site.width
        if site.knots is None:
            code = np.where(absent, -1, column).astype(np.int64)
            code[(code < 0) | (code >= site.levels)] = site.width
        else:
            knots = np.array(site.knots)
            with np.errstate(over="ignore"):
                scaled = (np.where(absent, site.shift, column) - site.shift) / site.scale
            scaled = np.clip(scaled, knots[0], knots[-1])
            code = np.clip(np.searchsorted(knots, scaled, side="right") - 1, 0, max(len(knots) - 2, 0))
            if len(knots) > 1:
                share = (scaled - knots[code]) / (knots[code + 1] - knots[code])
                at_end = share >= 1
                code, share = code + at_end, np.where(at_end | absent, 0.0, share)
                shares[:, n] = share
        codes[:, n] = np.where(absent, state, code)
    return Rows(torch.from_numpy(codes), torch.from_numpy(shares))


def _number_site(column: np.ndarray, weights: np.ndarray, count: int, beyond: bool) -> Site:
    present = ~np.isnan(column)
    missing = not present.all()
    if not present.any():
        return Site(*_AT_ZERO, missing=missing)
    raw, used = column[present], weights[present]
    least, most = raw.min(), raw.max()
    if least == most:
        return Site(*_AT_ZERO, missing=missing, shift=float(least))
    # The middle nine tenths set the scale: a value of 1e30 leaves the others apart. Halves before differences, so that
    # a column from -1e308 to 1e308 does not overflow.
    bottom, middle, top = weighted_quantile(raw, used, (0.05, 0.5, 0.95))
    shift, scale = (middle, top / 2 - bottom / 2) if top > bottom else (least / 2 + most / 2, most / 2 - least / 2)
    with np.errstate(over="ignore"):
        scaled = np.clip((raw - shift) / scale, -_FURTHEST, _FURTHEST)
    distinct, inverse = np.unique(scaled, return_inverse=True)
    if len(distinct) == 1:
        return Site(*_AT_ZERO, missing=missing, shift=float(shift), scale=float(scale))
    counts = np.bincount(inverse, used)
    share = counts / used.sum()
    # Straight lines end where a tail becomes an accident.
    bounded = np.clip(distinct, -_TAIL, _TAIL) if top > bottom else distinct
    mean = share @ bounded
    size = np.sqrt(share @ (bounded - mean) ** 2)
    straight = (bounded - mean) / size
    rank = (np.cumsum(share) - share / 2 - 0.5) * np.sqrt(12)
    # Half the value, half its rank: neither a long tail nor a crowd of equal values takes the whole scale.
    position = 0.5 * straight + 0.5 * rank
    chosen = np.arange(len(distinct)) if len(distinct) <= count else _spread_out(position, count)
    found = np.stack([distinct, position, straight])[:, chosen]
    ends = (0, 0)
    if beyond:
        further = np.array([1.0, 0.5 / size, 1 / size])
        low, high = _reach(-bounded, counts, size), _reach(bounded[::-1], counts[::-1], size)
        left, right = found[:, :1] - low * further[:, None], found[:, -1:] + high * further[:, None]
        ends = int(low > 0), int(high > 0)
        found = np.hstack([left[:, : ends[0]], found, right[:, : ends[1]]])
    at_knots, positions, values = (tuple(each.tolist()) for each in found)
    return Site(at_knots, positions, values, 0, missing, shift=float(shift), scale=float(scale), beyond=ends)


def _reach(
    values: np.ndarray,  # (D,), the outermost first and the largest
    counts: np.ndarray,  # (D,)
    size: float,  # their standard deviation
) -> float:
    """Distance beyond the outermost value at which a new one may be; 0 where it is not a single row's, or no tail's.

    Excesses over a high value hardly depend on how high it is: of most columns they are exponential, or fall off
    faster. A value that several rows have is the end of a scale.
    """
    total = counts.sum()
    outermost = np.cumsum(counts) - counts < max(_OUTERMOST, _OUTERMOST_SHARE * total)
    if counts[0] >= 2 or total < 2 * _OUTERMOST or outermost.all():
        return 0.0
    excess = float(np.average(values[outermost], weights=counts[outermost]) - values[~outermost][0])
    reach = min(_REACH * excess, _FURTHEST_REACH * size, _TAIL - values[0])
    return reach if values[0] + reach > values[0] else 0.0


def _spread_out(position: np.ndarray, count: int) -> np.ndarray:
    """The places of at most ``count`` positions, as evenly spaced as they come.

    Where a gap leaves even spots without a position of their own, the spacing is narrowed until nearly all are used.
    """
    chosen = np.zeros(0, dtype=int)
    for spots in range(count, 4 * count):
        even = np.linspace(position[0], position[-1], spots)
        right = np.clip(np.searchsorted(position, even), 1, len(position) - 1)
        nearest = np.unique(np.where(even - position[right - 1] <= position[right] - even, right - 1, right))
        if len(nearest) > count:
            break
        chosen = nearest
    return chosen
