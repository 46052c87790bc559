"""The pieces of an exported graph: feature maps and trains, as functions of tensors or nodes.

The inner sites of a chain are one loop body over stacked cores, so N does not change the number of nodes.

A graph cannot raise. Where a map would refuse a value (not finite, outside the range with ``outside="error"``, no level
of a :class:`~restt.features.OneHot`), its site vector is NaN, and with it every output of the row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from restt import features
from restt._common.errors import shown
from restt.diagonal import DiagonalTT
from restt.features.base import tensor64
from restt.features.numeric import NumericMap
from restt.interop.onnx_graph import scan
from restt.module import ResTT

# Products of diagonal cores in one pass of the loop.
PRODUCTS_AT_ONCE = 1024

Function = Callable[..., Any]


class MapPart(NamedTuple):
    """A feature map: rows of this shape, (N,) or (N, P) where sites are patches of P values, to site vectors (N, I)."""

    row_shape: tuple[int, ...]
    vectors: Function


def map_part(feature_map: features.FeatureMap, module: ResTT | DiagonalTT) -> MapPart:
    """The graph form of a feature map that feeds ``module``."""
    if isinstance(feature_map, features.OneHot):
        part = _onehot_part(feature_map, module)
    elif isinstance(feature_map, NumericMap):
        part = _numeric_part(feature_map, module)
    else:
        raise TypeError(f"feature_map must be one of restt.features to be exported, got {shown(feature_map)}")
    if part.row_shape[0] != module.sites:
        raise ValueError(f"feature_map was fitted with {part.row_shape[0]} sites, the module has {module.sites}")
    return part


def _numeric_part(feature_map: NumericMap, module: ResTT | DiagonalTT) -> MapPart:
    """A map of finite numbers: refuse, clamp, then the map's own formula."""
    shape, outside, dtype = feature_map._expected_shape() or (module.sites,), feature_map.outside, module.dtype
    formula: Callable[[Any, int], Any] = feature_map._formula
    if isinstance(feature_map, features.Hat):
        formula = _hats(feature_map, dtype)
    ends = [] if outside == "extrapolate" else [end.to(dtype) for end in feature_map._range()]
    nan = _nan(dtype)

    def vectors(x: Any) -> Any:
        refused = ~torch.isfinite(x)
        if outside == "error":
            refused = refused | (x < ends[0]) | (x > ends[1])
        elif outside == "clamp":
            x = torch.minimum(torch.maximum(x, ends[0]), ends[1])
        x = torch.where(refused, nan, x)
        return formula(x, shape[1]) if len(shape) == 2 else formula(x.unsqueeze(-1), 1)

    return MapPart(shape, vectors)


def _hats(feature_map: features.Hat, dtype: torch.dtype) -> Callable[[Any, int], Any]:
    """Hats as differences of ramps: ramp j is 0 before step j (from knot j to j+1), 1 after it, and linear on it.

    φ_j = ramp_{j-1} - ramp_j needs no search for the step a value lies in. Ramp -1 is 1, the ramp after the last step
    is 0, and the first and the last step go on beyond the outermost knots.
    """
    rows, width = feature_map.site_knots, feature_map.width
    start, lowest, highest = (torch.zeros(len(rows), width + 1, dtype=dtype) for _ in range(3))
    gap = torch.ones_like(start)
    lowest[:, 0] = highest[:, 0] = 1
    for site, row in enumerate(rows):
        knots, steps = tensor64(row).to(dtype), slice(1, len(row))
        start[site, steps], gap[site, steps], highest[site, steps] = knots[:-1], knots.diff(), 1
        if len(row) > 1:
            lowest[site, 1], highest[site, len(row) - 1] = -math.inf, math.inf
    # Knots that rounding made equal: a jump at the knot, but for the last step, on which nothing lies.
    equal = gap == 0
    lowest[equal], highest[equal] = 0, (~highest[equal].isinf()).to(dtype)
    start[equal], gap[equal] = start[equal].nextafter(start.new_tensor(-math.inf)), torch.finfo(dtype).tiny

    def hats(x: Any, _: int) -> Any:  # (B, N, 1) -> (B, N, I)
        ramps = torch.minimum(torch.maximum((x - start) / gap, lowest), highest)
        return ramps.narrow(-1, 0, width) - ramps.narrow(-1, 1, width)

    return hats


def _onehot_part(feature_map: features.OneHot, module: ResTT | DiagonalTT) -> MapPart:
    """Levels are compared in the graph's dtype; a level that no value can equal is NaN."""
    rows, moment, dtype = feature_map.site_levels, feature_map._moment, module.dtype
    sites = len(moment) if moment is not None else len(rows) if len(rows) > 1 else module.sites
    table = torch.full((len(rows), feature_map.width), math.nan, dtype=dtype)
    for site, row in enumerate(rows):
        text = [level for level in row if isinstance(level, str)]
        if text:
            raise ValueError(
                f"feature_map has the text level {shown(text[0])} at site {site}, but the graph takes numbers: "
                "number the categories before the map"
            )
        levels = tensor64(row).to(dtype)
        # Of levels that rounding made equal the map takes the last.
        hidden = (levels[:, None] == levels[None, :]).triu(1).any(dim=1)
        table[site, : len(row)] = levels.masked_fill(hidden, math.nan)
    nan, ones = _nan(dtype), torch.ones(table.shape[1], 1, dtype=dtype)
    refuses_missing, refuses_unknown = feature_map.missing == "error", feature_map.unknown == "error"

    def vectors(x: Any) -> Any:
        x = x.unsqueeze(-1)
        hits, missing = torch.eq(x, table).to(dtype), torch.isnan(x)
        refused = ~(torch.isfinite(x) | missing)
        if refuses_missing:
            refused = refused | missing
        if refuses_unknown:
            refused = refused | ((hits @ ones < 0.5) & ~missing)
        return torch.where(refused, nan, hits)

    return MapPart((sites,), vectors)


def _nan(dtype: torch.dtype) -> Tensor:
    # A tensor, because torch 2.7 writes a program's own numbers as JSON, which knows no NaN.
    return torch.tensor(math.nan, dtype=dtype)


def train_part(module: ResTT | DiagonalTT) -> Function:
    """Site features (B, N, I) -> outputs, always with the runs axis: (S, B, O)."""
    return _diagonal_part(module) if isinstance(module, DiagonalTT) else _chain_part(module)


def _chain_part(module: ResTT) -> Function:
    """The module as a plain train over [1, x(n)], see :meth:`restt.ResTT.cores`: every topology is the same graph."""
    sites, padding = module.sites, None if module.padding is None else _frozen(module.padding)
    first, *others = (_flat_core(core, module.runs is None, 1 + module.feature_dim) for core in module.cores())
    last = others.pop() if others else None  # (S, (1 + I) R, O)
    inner = torch.stack(others) if others else None  # (N - 2, S, (1 + I) R, R)
    merged = (len(first), -1, first.shape[1] * first.shape[2])

    def step(state: Any, x: Any, core: Any) -> Any:  # (S, B, R), (B, 1 + I), (S, (1 + I) R, R')
        return (x.unsqueeze(-1) * state.unsqueeze(-2)).reshape(*merged) @ core

    def outputs(x: Any) -> Any:
        if padding is not None:
            x = torch.where(padding, 0.0, x)
        x = torch.cat([x.narrow(-1, 0, 1) ** 0.0, x], dim=-1)  # [1, x]
        state = x.select(1, 0) @ first
        if inner is not None:
            steps = x.narrow(1, 1, sites - 2).transpose(0, 1)
            (state,) = scan(lambda carried, at: [step(*carried, *at)], [state], [steps, inner])
        return state if last is None else step(state, x.select(1, sites - 1), last)

    return outputs


def _diagonal_part(module: DiagonalTT) -> Function:
    """One loop over blocks of products; z = T x(n) of all sites side by side is carried through it."""
    widths = module.feature_dims
    tables = [_frozen(table.flatten(0, 1).T) for table in module.tables()]  # N of (I_n, G·M_n)
    effect, constant = _frozen(module.effect.T), _frozen(module.constant)
    counts = torch.tensor(module.vector_counts, device=module.device)
    first = (module.groups * counts).cumsum(0) - module.groups * counts
    groups = torch.arange(module.groups, device=module.device)[:, None, None] * counts
    index = _blocks((first + groups + module.code).flatten(0, 1).to(module.share)).transpose(1, 2)  # (…, N, J)
    share = _blocks(module.share.repeat(module.groups, 1)).transpose(1, 2)
    coefficients = _blocks(module.coefficients.flatten(0, 1))
    beyond = torch.zeros(sum(widths), 1, dtype=module.dtype)

    def add_block(carried: list[Any], slices: list[Any]) -> list[Any]:
        (output, z), (index, share, coefficients) = carried, slices
        state = None
        for n in range(len(widths)):
            here, part = index.select(0, n), share.select(0, n)
            left, right = (z.index_select(-1, place.to(torch.int64)) for place in (here, here + 1.0))
            value = left * (1.0 - part) + right * part
            state = value if state is None else state * value
        # Carried on as another value: a loop returns none of its inputs.
        return [output + state @ coefficients, z + 0.0]

    def outputs(x: Any) -> Any:
        sites = [x.select(1, n).narrow(-1, 0, width) for n, width in enumerate(widths)]
        packed = torch.cat(sites, dim=-1)
        # One number more than there are: the one after the last, whose share is 0.
        z = torch.cat([*(site @ table for site, table in zip(sites, tables, strict=True)), packed @ beyond], dim=-1)
        return scan(add_block, [packed @ effect + constant, z], [index, share, coefficients])[0].unsqueeze(0)

    return outputs


def _blocks(part: Tensor) -> Tensor:  # (J, K) -> (blocks, J of one, K), filled up with zeros
    count = -(-len(part) // PRODUCTS_AT_ONCE)
    size = -(-len(part) // count)
    filled = nn.functional.pad(part, (0, 0, 0, count * size - len(part)))
    return _frozen(filled).unflatten(0, (count, size))


def _flat_core(core: Tensor, alone: bool, width: int) -> Tensor:  # (S, width · left, right)
    """A core (left, D, right), or (S, left, D, right) unless ``alone``, filled up to ``width`` features, slowest."""
    core = _frozen(core.unsqueeze(0) if alone else core).transpose(1, 2)
    return nn.functional.pad(core, (0, 0, 0, 0, 0, width - core.shape[1])).flatten(1, 2)


def _frozen(tensor: Tensor) -> Tensor:
    """A copy that no training and no device reaches."""
    return tensor.detach().to("cpu", copy=True).contiguous()
