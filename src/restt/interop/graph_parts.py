"""The pieces of an exported graph: feature maps and the chain.

The chain's sites 2…N-1 are one loop body over stacked weights, so N does not change the graph's size.

A graph cannot raise. Where a map would refuse a value (not finite, outside the range with ``outside="error"``, no level
of a :class:`~restt.features.OneHot`), its row is *refused*, and the graph's output for that row is NaN.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from restt import features
from restt._common.errors import shown
from restt.diagonal import DiagonalTT
from restt.features.base import tensor64
from restt.features.numeric import NumericMap
from restt.interop.onnx_graph import GraphPart, any_last, scan
from restt.module import ResTT

# Products of diagonal cores in one pass of the loop.
PRODUCTS_AT_ONCE = 1024


class MapPart(GraphPart):
    """One row (N,), or (N, P) where sites are patches of P values, becomes N site vectors."""

    row_shape: tuple[int, ...]

    @abstractmethod
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The site vectors (B, N, I), and which rows the map refuses as booleans (B, 1)."""


class NumericPart(MapPart):
    """A map of finite numbers: refuse, clamp, then the formula."""

    def __init__(self, feature_map: NumericMap, module: ResTT | DiagonalTT) -> None:
        super().__init__()
        patch = max(1, self.patch_width(module.feature_dim))
        unfitted = (module.sites,) if patch == 1 else (module.sites, patch)
        self.row_shape = feature_map._expected_shape() or unfitted
        self.outside, self.dtype = feature_map.outside, module.dtype
        if self.outside != "extrapolate":
            low, high = feature_map._range()
            self.low, self.high = nn.Buffer(low.to(module.dtype)), nn.Buffer(high.to(module.dtype))

    def patch_width(self, feature_dim: int) -> int:
        """How many values an unfitted map reads at each site to write ``feature_dim``."""
        return 1

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Refuse, clamp, then the formula."""
        refused = ~torch.isfinite(x)
        if self.outside == "error":
            refused = refused | (x < self.low) | (x > self.high)
        elif self.outside != "extrapolate":
            x = torch.minimum(torch.maximum(x, self.low), self.high)
        for size in self.row_shape[:0:-1]:
            refused = any_last(refused, size, self.dtype)
        vectors = x if len(self.row_shape) == 2 else x.unsqueeze(-1)
        return self.formula(vectors), any_last(refused, self.row_shape[0], self.dtype, keep=True)

    @abstractmethod
    def formula(self, x: Tensor) -> Tensor:
        """Site vectors: (B, N, P) -> (B, N, I)."""


class IdentityPart(NumericPart):
    def patch_width(self, feature_dim: int) -> int:
        return feature_dim

    def formula(self, x: Tensor) -> Tensor:
        return x


class AffinePart(NumericPart):
    def patch_width(self, feature_dim: int) -> int:
        return feature_dim - 1

    def formula(self, x: Tensor) -> Tensor:
        return torch.cat([x.narrow(-1, 0, 1) ** 0.0, x], dim=-1)


class TrigonometricPart(NumericPart):
    def patch_width(self, feature_dim: int) -> int:
        return feature_dim // 2

    def formula(self, x: Tensor) -> Tensor:
        angle = x * (math.pi / 2)
        width = self.row_shape[1] if len(self.row_shape) == 2 else 1
        return torch.cat([torch.cos(angle), torch.sin(angle)], dim=-1) / math.sqrt(width)


class PolynomialPart(NumericPart):
    def __init__(self, feature_map: features.Polynomial, module: ResTT | DiagonalTT) -> None:
        super().__init__(feature_map, module)
        first = 0 if feature_map.include_bias else 1
        self.exponents = nn.Buffer(torch.arange(first, feature_map.degree + 1, dtype=module.dtype))

    def formula(self, x: Tensor) -> Tensor:
        return torch.pow(x, self.exponents)


class HatPart(NumericPart):
    """Hats as differences of ramps: ramp j is 0 before step j (from knot j to j+1), 1 after it, and linear on it.

    φ_j = ramp_{j-1} - ramp_j needs no search for the step a value lies in. Ramp -1 is 1, the ramp after the last step
    is 0, and the first and the last step go on beyond the outermost knots.
    """

    def __init__(self, feature_map: features.Hat, module: ResTT | DiagonalTT) -> None:
        super().__init__(feature_map, module)
        dtype, rows, width = module.dtype, feature_map.site_knots, feature_map.width
        start, gap, low, high = (torch.zeros(len(rows), width + 1, dtype=dtype) for _ in range(4))
        jump = torch.zeros(len(rows), width + 1, dtype=torch.bool)
        gap += 1
        low[:, 0] = high[:, 0] = 1
        for site, row in enumerate(rows):
            knots, steps = tensor64(row).to(dtype), slice(1, len(row))
            start[site, steps], gap[site, steps], high[site, steps] = knots[:-1], knots.diff(), 1
            if len(row) > 1:
                low[site, 1], high[site, len(row) - 1] = -math.inf, math.inf
                # Knots that rounding made equal: nothing lies on the last step, any other is jumped over.
                flat = gap[site] == 0
                if flat[len(row) - 1]:
                    low[site, len(row) - 1] = high[site, len(row) - 1] = 0
                    flat[len(row) - 1] = False
                jump[site] = flat
        gap[gap == 0] = 1
        self.start, self.gap, self.lowest, self.highest = (nn.Buffer(part) for part in (start, gap, low, high))
        self.jump = nn.Buffer(jump) if bool(jump.any()) else None

    def formula(self, x: Tensor) -> Tensor:
        ramps = (x - self.start) / self.gap
        ramps = torch.minimum(torch.maximum(ramps, self.lowest), self.highest)
        if self.jump is not None:
            ramps = torch.where(self.jump, (~(x < self.start)).to(self.dtype), ramps)
        count = self.start.shape[1] - 1
        return ramps.narrow(-1, 0, count) - ramps.narrow(-1, 1, count)


class OneHotPart(MapPart):
    """Levels are compared in the graph's dtype; a level that no value can equal is NaN."""

    def __init__(self, feature_map: features.OneHot, module: ResTT | DiagonalTT) -> None:
        super().__init__()
        self.unknown, self.missing, self.dtype = feature_map.unknown, feature_map.missing, module.dtype
        rows, moment = feature_map.site_levels, feature_map._moment
        self.row_shape = (len(moment),) if moment is not None else (len(rows) if len(rows) > 1 else module.sites,)
        held = torch.full((len(rows), feature_map.width), math.nan, dtype=module.dtype)
        for site, row in enumerate(rows):
            text = [level for level in row if isinstance(level, str)]
            if text:
                raise ValueError(
                    f"feature_map has the text level {shown(text[0])} at site {site}, but the graph takes numbers: "
                    "number the categories before the map"
                )
            levels = tensor64(row).to(held.dtype)
            # Of levels that rounding made equal the map takes the last.
            hidden = (levels[:, None] == levels[None, :]).triu(1).any(dim=1)
            held[site, : len(row)] = levels.masked_fill(hidden, math.nan)
        self.levels = nn.Buffer(held)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compare with every level."""
        hits, missing = torch.eq(x.unsqueeze(-1), self.levels), torch.isnan(x)
        refused = torch.isinf(x)
        if self.missing == "error":
            refused = refused | missing
        if self.unknown == "error":
            refused = refused | (~any_last(hits, self.levels.shape[1], self.dtype) & ~missing)
        return hits.to(self.dtype), any_last(refused, self.row_shape[0], self.dtype, keep=True)


PARTS: dict[type[features.FeatureMap], type[MapPart]] = {
    features.Identity: IdentityPart,
    features.Affine: AffinePart,
    features.Trigonometric: TrigonometricPart,
    features.Polynomial: PolynomialPart,
    features.Hat: HatPart,
    features.OneHot: OneHotPart,
}


def map_part(feature_map: features.FeatureMap, module: ResTT | DiagonalTT) -> MapPart:
    """The graph form of a feature map that feeds ``module``."""
    if type(feature_map) not in PARTS:
        known = ", ".join(kind.__name__ for kind in PARTS)
        raise TypeError(f"feature_map has no graph form: expected {known} or a torch module, got {shown(feature_map)}")
    part = PARTS[type(feature_map)](feature_map, module)
    if part.row_shape[0] != module.sites:
        raise ValueError(f"feature_map was fitted with {part.row_shape[0]} sites, the module has {module.sites}")
    return part


class ChainPart(GraphPart):
    """Site features (B, N, I) -> the module's outputs, always with the runs axis: (S, B, O).

    The topology's per-site switches become numbers that are scanned along with the weights, 0 for what a site lacks.
    """

    def __init__(self, module: ResTT) -> None:
        super().__init__()
        self.topology, weights = module.topology, module.weights()
        self.sites = module.sites
        self.padding = _optional(module.padding)
        self.first = nn.Buffer(_frozen(weights.first))
        self.merged = (len(self.first), -1, module.feature_dim * module.bond_dim)
        self.bias = _optional(module.bias)
        if self.sites == 1:
            return
        chains, linears, skips = self.topology.chains, self.topology.linears, self.topology.skips
        self.last_chain = _optional(weights.last_chain, flatten=1)
        self.last_linear = _optional(weights.last_linear)
        self.last_skip = _optional(weights.last_skip)
        runs, _, bond = weights.first.shape
        self.nothing = nn.Buffer(torch.zeros(runs, bond, weights.outputs, dtype=weights.first.dtype))
        self.chain = _scanned(weights.chain, chains[:-1], flatten=2)
        self.linear = _scanned(weights.linear, linears[:-1])
        self.stays = nn.Buffer(self._switches([skip == "full" for skip in skips[:-1]]))
        self.leaves = nn.Buffer(self._switches([skip == "output" for skip in skips[:-1]]))

    def _switches(self, flags: Sequence[bool]) -> Tensor:
        return torch.tensor(flags, dtype=self.first.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Contract from the first site to the last."""
        if self.padding is not None:
            x = torch.where(self.padding, 0.0, x)
        y = x.select(1, 0) @ self.first
        output = y if self.sites == 1 else self._from_first(x, y)
        return output if self.bias is None else output + self.bias

    def _from_first(self, x: Tensor, y: Tensor) -> Tensor:
        leaving = None
        if self.sites > 2:
            y, leaving = self._inner_sites(x.narrow(1, 1, self.sites - 2).transpose(0, 1), y)
        if self.topology.ends_with_skip:
            leaving = y if leaving is None else leaving + y
        last, terms = x.select(1, self.sites - 1), []
        if self.last_chain is not None:
            terms.append(self._outer(y, last) @ self.last_chain)
        if self.last_linear is not None:
            terms.append(last @ self.last_linear)
        if leaving is not None:
            assert self.last_skip is not None
            terms.append(leaving @ self.last_skip)
        return summed(terms) if terms else torch.zeros_like(y) @ self.nothing

    def _inner_sites(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor | None]:
        weights = [each for each in (self.chain, self.linear) if each is not None]
        if not self.topology.has_output_skip:
            return scan(self._step, [y], [x, *weights, self.stays])[0], None
        y, leaving = scan(self._step, [y, torch.zeros_like(y)], [x, *weights, self.stays, self.leaves])
        return y, leaving

    def _step(self, carried: list[Tensor], slices: list[Tensor]) -> list[Tensor]:
        """Eq. 11 at one site: y(n) = y(n-1) + Σ_i x(n,i) y(n-1) W(n,1)_i + x(n) W(n,2), what the site has of it."""
        y, remaining = carried[0], list(slices)
        x, terms = remaining.pop(0), []
        if self.chain is not None:
            terms.append(self._outer(y, x) @ remaining.pop(0))
        if self.linear is not None:
            terms.append(x @ remaining.pop(0))
        terms.append(y * remaining.pop(0))
        following = [summed(terms)]
        if self.topology.has_output_skip:
            following.append(carried[1] + y * remaining.pop(0))
        return following

    def _outer(self, y: Tensor, x: Tensor) -> Tensor:
        """x ⊗ y (S, B, I·R) of the state (S, B, R) and one site's features (B, I), features slowest."""
        return (x.unsqueeze(-1) * y.unsqueeze(-2)).reshape(*self.merged)


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
        seen = [site @ self.get_buffer(f"table_{n}") for n, site in enumerate(sites)]
        # One number more than there are: the one after the last, whose share is 0.
        z = torch.cat([*seen, packed @ self.beyond], dim=-1)
        output = packed @ self.effect + self.constant
        return scan(self._step, [output, z], [self.index, self.share, self.coefficients])[0].unsqueeze(0)

    def _step(self, carried: list[Tensor], slices: list[Tensor]) -> list[Tensor]:
        """Add a block of products."""
        (output, z), (index, share, coefficients) = carried, slices
        state = None
        for n in range(len(self.widths)):
            here, part = index.select(0, n), share.select(0, n)
            value = z.index_select(-1, here.long()) * (1.0 - part) + z.index_select(-1, (here + 1.0).long()) * part
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


def summed(terms: Sequence[Tensor]) -> Tensor:
    """The sum of one or more values."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _frozen(tensor: Tensor) -> Tensor:
    """A copy that no training and no device reaches."""
    return tensor.detach().to("cpu", copy=True)


def _optional(weights: Tensor | None, flatten: int | None = None) -> Tensor | None:
    if weights is None:
        return None
    return nn.Buffer(_frozen(weights if flatten is None else weights.flatten(flatten, flatten + 1)))


def _scanned(weights: Tensor | None, used: Sequence[bool], flatten: int | None = None) -> Tensor | None:
    """Stacked weights (S, N-2, …) with the site axis first, zero at the sites that lack the connection."""
    if weights is None:
        return None
    held = _frozen(weights)
    held[:, ~torch.tensor(used, dtype=torch.bool)] = 0
    if flatten is not None:
        held = held.flatten(flatten, flatten + 1)
    return nn.Buffer(held.transpose(0, 1).contiguous())
