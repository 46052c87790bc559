"""A fitted encoding as part of an exported graph: from the table's numbers to site vectors."""

from __future__ import annotations

import math

import torch
from torch import nn

from restt.diagonal import DiagonalTT
from restt.estimators.columns import AVERAGE
from restt.estimators.encoding import Encoding
from restt.interop.graph_parts import MapPart, map_part
from restt.interop.operations import Ops, Value
from restt.module import ResTT


class EncodingPart(MapPart):
    """:meth:`Encoding.vectors` as operations. A row with a value that the encoding refuses is refused."""

    def __init__(self, encoding: Encoding, module: ResTT | DiagonalTT) -> None:
        super().__init__()
        dtype, sites, width = module.dtype, len(encoding.order), max(encoding.widths)
        self.row_shape, self.sites = (len(encoding.columns),), sites
        self.map = map_part(encoding.feature_map, module)
        selection = torch.zeros(sites, sites, dtype=dtype)
        selection[list(encoding.order), torch.arange(sites)] = 1
        in_order = list(encoding.order) == list(range(sites))
        self.selection = None if in_order else nn.Buffer(selection)
        self.shift, self.scale, self.fill = (
            nn.Buffer(part.to(dtype)) for part in (encoding.shift, encoding.scale, encoding.fill)
        )
        self.widening = nn.Buffer(torch.eye(encoding.feature_map.width, width, dtype=dtype))
        self.categorical = nn.Buffer(encoding.categorical)
        states = torch.arange(width)
        counts = torch.tensor([column.states for column in encoding.sites])
        self.levels = nn.Buffer(states.to(dtype).masked_fill(states >= counts[:, None], math.nan))  # (N, I)
        self.missing_state = nn.Buffer(states == encoding.missing_states[:, None])  # (N, I)
        never = encoding.missing_states < 0
        averaged = torch.tensor([column.averages_missing for column in encoding.sites])
        self.missing_refused, self.missing_averaged = nn.Buffer(never & ~averaged), nn.Buffer(never & averaged)
        self.averaged = nn.Buffer(torch.tensor([column.other is False for column in encoding.sites]))
        self.means = None if encoding.means is None else nn.Buffer(encoding.means.to(dtype))
        left = torch.zeros(sites, width) if encoding.site_means is None else encoding.site_means
        self.site_means = nn.Buffer(left.to(dtype))  # (N, I)

    def build(self, ops: Ops, x: Value) -> tuple[Value, Value]:
        vectors, refused, _ = self.states(ops, x)
        return vectors, refused

    def states(self, ops: Ops, x: Value) -> tuple[Value, Value, Value]:
        """Site vectors (B, N, I), refused rows (B, 1), and where a value is one that the fit did not see (B, N)."""
        zero, finite, nan = ops.number(0.0), ops.less(ops.absolute(x), ops.number(math.inf)), ops.is_nan(x)
        infinite = ops.any_last(ops.negate(ops.either(finite, nan)), self.row_shape[0], keep=True)
        values, missing = ops.where(finite, x, zero), nan
        if self.selection is not None:
            chosen = ops.constant(self.selection)
            values = ops.matmul(values, chosen)
            missing = ops.less(ops.number(0.5), ops.matmul(ops.as_float(nan), chosen))
        categorical = ops.constant(self.categorical)
        state = ops.either(missing, categorical)
        vectors, refused_by_map = self._mapped(ops, values, state)
        hits, unknown = self._levels(ops, values, missing)
        vectors = ops.add(vectors, ops.as_float(hits))
        if self.means is not None:
            vectors = ops.subtract(vectors, ops.constant(self.means))
        unseen = ops.either(unknown, ops.both(missing, ops.constant(self.missing_averaged)))
        vectors = ops.where(ops.insert_axis(unseen, -1), ops.constant(self.site_means), vectors)
        average = ops.both(ops.constant(self.averaged), ops.equal(values, ops.number(AVERAGE)))
        refused = ops.either(
            ops.both(unknown, ops.negate(average)), ops.both(missing, ops.constant(self.missing_refused))
        )
        refused_by_state = ops.any_last(refused, self.sites, keep=True)
        return vectors, ops.either(ops.either(infinite, refused_by_map), refused_by_state), unseen

    def _mapped(self, ops: Ops, values: Value, state: Value) -> tuple[Value, Value]:
        """The feature map's vectors, widened to (B, N, I), 0 where a state stands instead of a number."""
        filled = ops.where(state, ops.constant(self.fill), values)
        scaled = ops.divide(ops.subtract(filled, ops.constant(self.shift)), ops.constant(self.scale))
        # Far beyond the rows of the fit a quotient may overflow.
        limit = torch.finfo(ops.dtype).max
        vectors, refused = self.map.build(ops, ops.at_most(ops.at_least(scaled, -limit), limit))
        vectors = ops.where(ops.insert_axis(state, -1), ops.number(0.0), vectors)
        return ops.matmul(vectors, ops.constant(self.widening)), refused

    def _levels(self, ops: Ops, values: Value, missing: Value) -> tuple[Value, Value]:
        """Which one-hot entries are 1, (B, N, I), and where a category is none of the levels, (B, N)."""
        absent = ops.insert_axis(missing, -1)
        here = ops.equal(ops.insert_axis(values, -1), ops.constant(self.levels))
        here = ops.both(here, ops.negate(absent))
        known = ops.either(ops.any_last(here, self.levels.shape[1]), missing)
        unknown = ops.both(ops.constant(self.categorical), ops.negate(known))
        return ops.either(here, ops.both(absent, ops.constant(self.missing_state))), unknown
