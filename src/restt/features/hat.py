"""Linear B-splines and the placement of their knots."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.compat_torch import has_no_values
from restt._common.errors import check_choice, check_int, shown
from restt.features.base import rows_of, tensor64
from restt.features.numeric import NumericMap

PLACEMENTS = ("quantile", "uniform")
# Up to this many rows numpy is faster, as starting an operation of torch's takes longer than most of them: for 13
# columns of 8 knots 5 times for 16 rows, 2 times for 400 and 1,000.
QUICK_ROWS = 1024


class Hat(NumericMap):
    """φ_i(x) = the hat function that is 1 at knot i and 0 at every other: (B, N) -> (B, N, knots).

    The hats of a site sum to 1 (partition of unity), and a sum of hats is any piecewise linear function of x.

    Parameters
    ----------
    knots : an int, the number of knots placed by ``fit``; or increasing values, (K,) for all sites or one row of
        values per site. With values given, ``transform`` works without ``fit``.
    placement : ``"uniform"`` spreads the knots evenly over each column's range, ``"quantile"`` puts them at its
        (weighted) quantiles, at every distinct value where there are no more than ``knots`` of them.
    outside : beyond the outermost knots ``"clamp"`` (default) keeps the end value, ``"extrapolate"`` goes on
        linearly, ``"error"`` raises ``ValueError``.

    A column with few distinct quantiles has fewer knots (a constant column one, where φ = 1): ``widths`` tells, and
    the entries beyond are 0.

    >>> from restt.features import Hat
    >>> Hat(knots=[0.0, 1.0, 2.0])([[0.25], [5.0]]).tolist()
    [[[0.75, 0.25, 0.0]], [[0.0, 0.0, 1.0]]]
    """

    name = "hat"
    parameter_names = ("knots", "placement", "outside")
    dimensions = (2,)

    def __init__(self, knots: Any = 8, placement: str = "uniform", outside: str = "clamp") -> None:
        super().__init__(outside)
        self.placement = check_choice("placement", placement, PLACEMENTS)
        self.knots = _read_knots(knots)

    @property
    def site_knots(self) -> tuple[tuple[float, ...], ...]:
        """The knots of each site; a single entry when the same values were given for all sites."""
        if not isinstance(self.knots, int):
            return self.knots
        if self._fitted is None:
            raise self._not_fitted("site_knots")
        return tuple(tuple(row) for row in self._fitted["knots"])

    @property
    def width(self) -> int:
        """The number of knots of the site with most."""
        if isinstance(self.knots, int) and self._fitted is None:
            return self.knots
        return max(len(row) for row in self.site_knots)

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of knots of each site."""
        shape = self._expected_shape()
        if shape is None:
            raise self._not_fitted("widths")
        counts = tuple(len(row) for row in self.site_knots)
        return counts * shape[0] if len(counts) == 1 else counts

    def _expected_shape(self) -> tuple[int, ...] | None:
        if not isinstance(self.knots, int) and len(self.knots) > 1:
            return (len(self.knots),)
        return super()._expected_shape()

    def _check_given(self, values: Tensor) -> None:
        if not isinstance(self.knots, int) and len(self.knots) not in (1, values.shape[1]):
            raise ValueError(f"x must have {len(self.knots)} sites, one per row of knots, got {values.shape[1]}")

    def _learned(self, values: Tensor, weights: Tensor) -> dict[str, Any]:
        if not isinstance(self.knots, int):
            return {"knots": None}
        columns = values.double().T.unbind(0)
        if self.placement == "uniform":
            return {"knots": [uniform_knots(column, self.knots) for column in columns]}
        return {"knots": [quantile_knots(column, weights, self.knots) for column in columns]}

    def _range(self) -> tuple[Tensor, Tensor]:
        padded, _ = self._padded_knots()
        return padded[:, 0], padded[:, -1]

    def positions(self, values: Tensor) -> Tensor:  # (B, N)
        """Positions of finite values among their site's knots: i at knot i, linear between two.

        The hats of a value at p are ``max(0, 1 - abs(i - p))``, so that one number holds the whole site vector.

        >>> Hat(knots=[0.0, 1.0, 3.0]).positions(torch.tensor([[1.0], [2.5], [9.0]])).tolist()
        [[1.0], [1.75], [2.0]]
        """
        below, share = self._places(self._inside(values))
        return below + share

    def _places(self, values: Tensor) -> tuple[Tensor, Tensor]:  # (B, N) each
        """The knot below each value, of those that have one above, and the value's share of the way there."""
        padded, last = (part.to(values.device) for part in self._padded_knots())
        knots = padded.to(values.dtype).expand(values.shape[1], -1).contiguous()  # (N, K)
        upper, known = knots[:, 1:].contiguous(), values.detach()
        if has_no_values(values):  # a search warns in torch.func, and ONNX has none
            below = (known.unsqueeze(-1) >= upper).sum(-1)
        else:
            below = torch.searchsorted(upper, known.T.contiguous(), right=True).T
        below = torch.minimum(below, (last - 1).clamp(min=0))
        # A step of width 0 is a constant column, or two knots that rounding to the dtype of x made equal: share 0.
        steps = torch.nn.functional.pad(knots.diff(), (0, 1))
        steps = torch.where(steps > 0, steps, torch.inf)
        place = (below + knots.shape[1] * torch.arange(values.shape[1], device=values.device)).flatten()
        knot, step = (table.flatten().index_select(0, place).view_as(values) for table in (knots, steps))
        return below, (values - knot) / step

    def _map(self, values: Tensor) -> Tensor:
        padded, last = (part.to(values.device) for part in self._padded_knots())
        below, share = self._places(values)
        above = torch.minimum(below + 1, last)
        vectors = values.new_zeros(*values.shape, padded.shape[1])
        return vectors.scatter_add(-1, torch.stack([below, above], -1), torch.stack([1 - share, share], -1))

    def map_few(self, values: np.ndarray) -> np.ndarray:  # (B, N) -> (B, N, I), float64 each
        """:meth:`map` with ``outside="clamp"`` for a few rows of finite numbers, to the bit.

        numpy takes a fraction of the time to begin an operation, which for few rows is all the time there is.

        >>> Hat(knots=[0.0, 1.0, 2.0]).map_few(np.array([[0.25], [5.0]])).tolist()
        [[[0.75, 0.25, 0.0]], [[0.0, 0.0, 1.0]]]
        """
        knots, last = (part.numpy() for part in self._padded_knots())
        values = np.minimum(np.maximum(values, knots[:, 0]), knots[:, -1])
        width, entries = knots.shape[1], values.size
        below = np.minimum((knots[:, 1:] <= values[:, :, None]).sum(axis=-1), np.maximum(last - 1, 0))
        above = np.minimum(below + 1, last)
        first = width * np.arange(values.shape[1]) if len(knots) > 1 else 0
        left, right = knots.take(first + below), knots.take(first + above)
        # Only a site of one knot has a step of width 0, and there the value is the knot.
        share = ((values - left) / np.where(right > left, right - left, 1.0)).ravel()
        vectors, first = np.zeros(entries * width), width * np.arange(entries)
        vectors[first + below.ravel()] = 1 - share
        vectors[first + above.ravel()] += share
        return vectors.reshape(*values.shape, width)

    def _padded_knots(self) -> tuple[Tensor, Tensor]:
        """Knots (N or 1, K), the last one repeated, and the number of each site's last one, (N or 1,).

        Kept for as long as the knots are the same: for a single row they would take longer than the map itself.
        """
        kept = self.__dict__.get("_kept")
        if kept is None or kept[0] is not self._fitted:
            rows, width = self.site_knots, self.width
            padded = tensor64([row + (row[-1],) * (width - len(row)) for row in rows])
            kept = (self._fitted, padded, torch.tensor([len(row) - 1 for row in rows]))
            if not has_no_values(padded):  # a tracer's is worth nothing after it
                self._kept = kept
        return kept[1], kept[2]


def _read_knots(knots: Any) -> int | tuple[tuple[float, ...], ...]:
    if not isinstance(knots, (list, tuple, np.ndarray, Tensor)):
        return check_int("knots", knots, minimum=2)
    return tuple(_read_row(row) for row in rows_of(knots))


def _read_row(row: Any) -> tuple[float, ...]:
    try:
        values = np.asarray(row, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"knots must be an int or increasing numbers, got {shown(row)}") from None
    if values.ndim != 1 or len(values) < 1 or not np.isfinite(values).all() or (np.diff(values) <= 0).any():
        raise ValueError(f"knots must be finite and strictly increasing, at least one per site, got {shown(row)}")
    return tuple(values.tolist())


def uniform_knots(column: Tensor, count: int) -> list[float]:
    """``count`` evenly spaced knots over the range of ``column`` (B,); one knot for a constant column."""
    low, high = column.min().item(), column.max().item()
    if low == high:
        return [low]
    inner = torch.linspace(0, 1, count, dtype=torch.float64)[1:-1]
    return sorted({low, *(low * (1 - inner) + high * inner).tolist(), high})


def quantile_knots(column: Tensor, weights: Tensor, count: int) -> list[float]:
    """Up to ``count`` knots at the weighted quantiles 0, 1/(count-1), …, 1 of ``column`` (B,).

    Quantiles are values of the column (the inverse of the weighted distribution function), so that a row of weight 2
    counts exactly as two rows. A column with at most ``count`` distinct values has a knot at each; equal quantiles
    share one knot.

    >>> import torch
    >>> quantile_knots(torch.tensor([0., 0., 0., 1., 2., 9.]), torch.ones(6), 3)
    [0.0, 9.0]
    >>> quantile_knots(torch.tensor([0., 1., 2., 3., 9.]), torch.tensor([1., 1., 1., 9., 1.]), 3)
    [0.0, 3.0, 9.0]
    """
    ordered, order = column.sort(stable=True)
    distinct = ordered.unique_consecutive()
    if len(distinct) <= count:
        return [float(value) for value in distinct.tolist()]
    cumulative = weights[order].cumsum(0)
    levels = torch.linspace(0, 1, count, dtype=cumulative.dtype, device=cumulative.device) * cumulative[-1]
    places = torch.searchsorted(cumulative, levels).clamp(max=len(column) - 1)
    return list(dict.fromkeys(ordered[places].tolist()))
