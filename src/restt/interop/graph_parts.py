"""The pieces of an exported graph: feature maps and trains.

The inner sites of a chain are one loop body over stacked cores, so N does not change the number of nodes.

A graph cannot raise. Where a map would refuse a value (not finite, outside the range with ``outside="error"``, no level
of a :class:`~restt.features.OneHot`), its site vector is NaN, and with it every output of the row.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from restt import features
from restt._common.errors import shown
from restt.diagonal import DiagonalTT
from restt.features.base import tensor64
from restt.features.numeric import NumericMap
from restt.interop.onnx_graph import GraphPart, scan
from restt.module import ResTT

# Products of diagonal cores in one pass of the loop.
PRODUCTS_AT_ONCE = 1024


class MapPart(GraphPart):
    """One row (N,), or (N, P) where sites are patches of P values, becomes N site vectors (N, I)."""

    row_shape: tuple[int, ...]

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        # A buffer, because torch 2.7 writes a program's own numbers as JSON, which knows no NaN.
        self.nan = nn.Buffer(torch.tensor(math.nan, dtype=dtype))


class NumericPart(MapPart):
    """A map of finite numbers: refuse, clamp, then the map's own formula."""

    def __init__(self, feature_map: NumericMap, module: ResTT | DiagonalTT) -> None:
        super().__init__(module.dtype)
        self.formula: Callable[[Tensor, int], Tensor] = feature_map._formula
        self.row_shape = feature_map._expected_shape() or (module.sites,)
        self.outside = feature_map.outside
        if self.outside != "extrapolate":
            low, high = feature_map._range()
            self.low, self.high = nn.Buffer(low.to(module.dtype)), nn.Buffer(high.to(module.dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Site vectors."""
        refused = ~torch.isfinite(x)
        if self.outside == "error":
            refused = refused | (x < self.low) | (x > self.high)
        elif self.outside != "extrapolate":
            x = torch.minimum(torch.maximum(x, self.low), self.high)
        x = torch.where(refused, self.nan, x)
        return self.formula(x, self.row_shape[1]) if len(self.row_shape) == 2 else self.formula(x.unsqueeze(-1), 1)


class HatPart(NumericPart):
    """Hats as differences of ramps: ramp j is 0 before step j (from knot j to j+1), 1 after it, and linear on it.

    φ_j = ramp_{j-1} - ramp_j needs no search for the step a value lies in. Ramp -1 is 1, the ramp after the last step
    is 0, and the first and the last step go on beyond the outermost knots.
    """

    def __init__(self, feature_map: features.Hat, module: ResTT | DiagonalTT) -> None:
        super().__init__(feature_map, module)
        self.formula = self.hats
        dtype, rows, width = module.dtype, feature_map.site_knots, feature_map.width
        start, low, high = (torch.zeros(len(rows), width + 1, dtype=dtype) for _ in range(3))
        gap = torch.ones_like(start)
        low[:, 0] = high[:, 0] = 1
        for site, row in enumerate(rows):
            knots, steps = tensor64(row).to(dtype), slice(1, len(row))
            start[site, steps], gap[site, steps], high[site, steps] = knots[:-1], knots.diff(), 1
            if len(row) > 1:
                low[site, 1], high[site, len(row) - 1] = -math.inf, math.inf
                # Knots that rounding made equal: nothing lies on the last step, any other is a jump at its knot.
                if gap[site, len(row) - 1] == 0:
                    low[site, len(row) - 1] = high[site, len(row) - 1] = 0
                if gap[site, 1] == 0:
                    low[site, 1] = 0
        before = start.nextafter(torch.full_like(start, -math.inf))
        self.gap = nn.Buffer(torch.where(gap == 0, start - before, gap))
        self.start = nn.Buffer(torch.where(gap == 0, before, start))
        self.lowest, self.highest = nn.Buffer(low), nn.Buffer(high)

    def hats(self, x: Tensor, width: int) -> Tensor:  # (B, N, 1) -> (B, N, I)
        """Differences of neighbouring ramps."""
        ramps = torch.minimum(torch.maximum((x - self.start) / self.gap, self.lowest), self.highest)
        count = self.start.shape[1] - 1
        return ramps.narrow(-1, 0, count) - ramps.narrow(-1, 1, count)


class OneHotPart(MapPart):
    """Levels are compared in the graph's dtype; a level that no value can equal is NaN."""

    def __init__(self, feature_map: features.OneHot, module: ResTT | DiagonalTT) -> None:
        super().__init__(module.dtype)
        self.unknown, self.missing = feature_map.unknown, feature_map.missing
        rows, moment = feature_map.site_levels, feature_map._moment
        self.row_shape = (len(moment),) if moment is not None else (len(rows) if len(rows) > 1 else module.sites,)
        table = torch.full((len(rows), feature_map.width), math.nan, dtype=module.dtype)
        for site, row in enumerate(rows):
            text = [level for level in row if isinstance(level, str)]
            if text:
                raise ValueError(
                    f"feature_map has the text level {shown(text[0])} at site {site}, but the graph takes numbers: "
                    "number the categories before the map"
                )
            levels = tensor64(row).to(table.dtype)
            # Of levels that rounding made equal the map takes the last.
            hidden = (levels[:, None] == levels[None, :]).triu(1).any(dim=1)
            table[site, : len(row)] = levels.masked_fill(hidden, math.nan)
        self.levels, self.ones = nn.Buffer(table), nn.Buffer(torch.ones(table.shape[1], 1, dtype=table.dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Compare with every level."""
        x = x.unsqueeze(-1)
        hits, missing = torch.eq(x, self.levels).to(self.dtype), torch.isnan(x)
        refused = ~(torch.isfinite(x) | missing)
        if self.missing == "error":
            refused = refused | missing
        if self.unknown == "error":
            refused = refused | ((hits @ self.ones < 0.5) & ~missing)
        return torch.where(refused, self.nan, hits)


def map_part(feature_map: features.FeatureMap, module: ResTT | DiagonalTT) -> MapPart:
    """The graph form of a feature map that feeds ``module``."""
    part: MapPart
    if isinstance(feature_map, features.OneHot):
        part = OneHotPart(feature_map, module)
    elif isinstance(feature_map, features.Hat):
        part = HatPart(feature_map, module)
    elif isinstance(feature_map, NumericMap):
        part = NumericPart(feature_map, module)
    else:
        raise TypeError(f"feature_map must be one of restt.features to be exported, got {shown(feature_map)}")
    if part.row_shape[0] != module.sites:
        raise ValueError(f"feature_map was fitted with {part.row_shape[0]} sites, the module has {module.sites}")
    return part


class ChainPart(GraphPart):
    """Site features (B, N, I) -> the module's outputs, always with the runs axis: (S, B, O).

    The module as a plain train over [1, x(n)], see :meth:`restt.ResTT.cores`: every topology is the same graph.
    """

    def __init__(self, module: ResTT) -> None:
        super().__init__()
        self.sites, self.padding = module.sites, None if module.padding is None else nn.Buffer(_frozen(module.padding))
        first, *inner = (_flat_core(core, module.runs is None, 1 + module.feature_dim) for core in module.cores())
        self.first = nn.Buffer(first)  # (S, 1 + I, R)
        self.last = nn.Buffer(inner.pop()) if inner else None  # (S, (1 + I) R, O)
        self.inner = nn.Buffer(torch.stack(inner)) if inner else None  # (N - 2, S, (1 + I) R, R)
        self.merged = (len(first), -1, first.shape[1] * first.shape[2])

    def forward(self, x: Tensor) -> Tensor:
        """Contract from the first site to the last."""
        if self.padding is not None:
            x = torch.where(self.padding, 0.0, x)
        x = torch.cat([x.narrow(-1, 0, 1) ** 0.0, x], dim=-1)  # [1, x]
        state = x.select(1, 0) @ self.first
        if self.inner is not None:
            sites = x.narrow(1, 1, self.sites - 2).transpose(0, 1)
            (state,) = scan(lambda carried, at: [self._step(*carried, *at)], [state], [sites, self.inner])
        return state if self.last is None else self._step(state, x.select(1, self.sites - 1), self.last)

    def _step(self, state: Tensor, x: Tensor, core: Tensor) -> Tensor:  # (S, B, R), (B, 1 + I), (S, (1 + I) R, R')
        return (x.unsqueeze(-1) * state.unsqueeze(-2)).reshape(*self.merged) @ core


class DiagonalPart(GraphPart):
    """Site features (B, N, I) -> the outputs (1, B, O) of a train with diagonal cores.

    One loop over blocks of products; z = T x(n) of all sites side by side is carried through it.
    """

    def __init__(self, module: DiagonalTT) -> None:
        super().__init__()
        self.widths = module.feature_dims
        for n, table in enumerate(module.tables()):
            self.register_buffer(f"table_{n}", _frozen(table.flatten(0, 1).T.contiguous()))  # (I_n, G·M_n)
        self.effect, self.constant = nn.Buffer(_frozen(module.effect.T)), nn.Buffer(_frozen(module.constant))
        counts = torch.tensor(module.vector_counts, device=module.device)
        first = (module.groups * counts).cumsum(0) - module.groups * counts
        groups = torch.arange(module.groups, device=module.device)[:, None, None] * counts
        index = (first + groups + module.code).flatten(0, 1)  # (J, N)
        share = module.share.repeat(module.groups, 1)
        coefficients = module.coefficients.flatten(0, 1)
        self.index, self.share = (nn.Buffer(_blocks(part).transpose(1, 2)) for part in (index.to(share), share))
        self.coefficients = nn.Buffer(_blocks(coefficients))
        self.beyond = nn.Buffer(torch.zeros(sum(self.widths), 1, dtype=module.dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Sum blocks of products."""
        sites = [x.select(1, n).narrow(-1, 0, width) for n, width in enumerate(self.widths)]
        packed = torch.cat(sites, dim=-1)
        products = [site @ self.get_buffer(f"table_{n}") for n, site in enumerate(sites)]
        # One number more than there are: the one after the last, whose share is 0.
        z = torch.cat([*products, packed @ self.beyond], dim=-1)
        output = packed @ self.effect + self.constant
        return scan(self._step, [output, z], [self.index, self.share, self.coefficients])[0].unsqueeze(0)

    def _step(self, carried: list[Tensor], slices: list[Tensor]) -> list[Tensor]:
        """Add a block of products."""
        (output, z), (index, share, coefficients) = carried, slices
        state = None
        for n in range(len(self.widths)):
            here, part = index.select(0, n), share.select(0, n)
            left, right = (z.index_select(-1, place.to(torch.int64)) for place in (here, here + 1.0))
            value = left * (1.0 - part) + right * part
            state = value if state is None else state * value
        assert state is not None
        # Carried on as another value: a loop returns none of its inputs.
        return [output + state @ coefficients, z + 0.0]


def _blocks(part: Tensor) -> Tensor:  # (J, K) -> (blocks, J of one, K), filled up with zeros
    count = -(-len(part) // PRODUCTS_AT_ONCE)
    size = -(-len(part) // count)
    filled = part.new_zeros(count * size, part.shape[1])
    filled[: len(part)] = part
    return _frozen(filled.unflatten(0, (count, size)))


def _flat_core(core: Tensor, alone: bool, width: int) -> Tensor:  # (S, width · left, right)
    """A core (left, D, right), or (S, left, D, right) unless ``alone``, filled up to ``width`` features, slowest."""
    core = _frozen(core.unsqueeze(0) if alone else core).transpose(1, 2)
    return nn.functional.pad(core, (0, 0, 0, 0, 0, width - core.shape[1])).flatten(1, 2)


def _frozen(tensor: Tensor) -> Tensor:
    """A copy that no training and no device reaches."""
    return tensor.detach().to("cpu", copy=True)
