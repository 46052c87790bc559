"""A fitted encoding as part of an exported graph: from the table's numbers to site vectors."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from restt.diagonal import DiagonalTT
from restt.estimators.columns import AVERAGE
from restt.estimators.encoding import Encoding
from restt.interop.graph_parts import MapPart, map_part
from restt.interop.onnx_graph import any_last
from restt.module import ResTT


class EncodingPart(MapPart):
    """:meth:`Encoding.vectors` as operations. A row with a value that the encoding refuses is refused."""

    def __init__(self, encoding: Encoding, module: ResTT | DiagonalTT) -> None:
        super().__init__()
        dtype, sites, width = module.dtype, len(encoding.order), max(encoding.widths)
        self.row_shape, self.sites, self.dtype = (len(encoding.columns),), sites, dtype
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

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Site vectors (B, N, I) and refused rows (B, 1)."""
        vectors, refused, _ = self.states(x)
        return vectors, refused

    def states(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Site vectors (B, N, I), refused rows (B, 1), and where a value is one that the fit did not see (B, N)."""
        finite, missing = torch.isfinite(x), torch.isnan(x)
        infinite = any_last(~(finite | missing), self.row_shape[0], self.dtype, keep=True)
        values = torch.where(finite, x, 0.0)
        if self.selection is not None:
            values = values @ self.selection
            missing = missing.to(self.dtype) @ self.selection > 0.5
        vectors, refused_by_map = self._mapped(values, missing | self.categorical)
        hits, unknown = self._levels(values, missing)
        vectors = vectors + hits.to(self.dtype)
        if self.means is not None:
            vectors = vectors - self.means
        unseen = unknown | (missing & self.missing_averaged)
        vectors = torch.where(unseen.unsqueeze(-1), self.site_means, vectors)
        average = torch.eq(values, AVERAGE) & self.averaged
        refused = (unknown & ~average) | (missing & self.missing_refused)
        refused_by_state = any_last(refused, self.sites, self.dtype, keep=True)
        return vectors, infinite | refused_by_map | refused_by_state, unseen

    def _mapped(self, values: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The feature map's vectors, widened to (B, N, I), 0 where a state stands instead of a number."""
        scaled = (torch.where(state, self.fill, values) - self.shift) / self.scale
        # Far beyond the rows of the fit a quotient may overflow.
        limit = torch.finfo(self.dtype).max
        vectors, refused = self.map(torch.clamp(scaled, -limit, limit))
        return torch.where(state.unsqueeze(-1), 0.0, vectors) @ self.widening, refused

    def _levels(self, values: Tensor, missing: Tensor) -> tuple[Tensor, Tensor]:
        """One-hot entries as booleans (B, N, I), and places of unknown categories (B, N)."""
        absent = missing.unsqueeze(-1)
        here = torch.eq(values.unsqueeze(-1), self.levels) & ~absent
        known = any_last(here, self.levels.shape[1], self.dtype) | missing
        return here | (absent & self.missing_state), ~known & self.categorical
