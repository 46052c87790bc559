"""What every feature map offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from restt._common.errors import shown


class FeatureMap(ABC):
    """Columns or pixels to site vectors: (B, N) -> (B, N, I).

    ``fit`` learns ranges, knots or levels and returns the map; ``transform`` (also by calling the map) applies it.
    Maps that need nothing learned transform without ``fit``.

    Two maps are equal when their parameters and what they learned are equal. A map changes when fitted, so it has
    no hash.
    """

    name: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]]

    @abstractmethod
    def fit(self, x: Any, sample_weight: Any = None) -> Self:
        """Learn from ``x`` (B, N); rows count in proportion to ``sample_weight`` (B,), rows of weight 0 not at all."""

    @abstractmethod
    def transform(self, x: Any) -> Tensor:
        """Site vectors (B, N, I) of ``x`` (B, N)."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Width I of the output, the widest site where widths differ."""

    @property
    @abstractmethod
    def widths(self) -> tuple[int, ...]:
        """Width of each site, for ``ResTT(feature_dim=...)``; entries of the output beyond it are 0."""

    @property
    @abstractmethod
    def second_moment(self) -> float | Tensor:
        """E Σ_i x_{n,i}² of the site vectors: a constant where it is exact, else (N,) in float64 from the fit."""

    def fit_transform(self, x: Any, sample_weight: Any = None) -> Tensor:
        """``fit(x, sample_weight).transform(x)``."""
        return self.fit(x, sample_weight).transform(x)

    def __call__(self, x: Any) -> Tensor:
        return self.transform(x)

    def to_config(self) -> dict[str, Any]:
        """Parameters and learned values as JSON-able values; floats survive the round trip exactly.

        >>> from restt import features
        >>> features.Polynomial(degree=2).to_config()["parameters"]
        {'degree': 2, 'include_bias': True, 'outside': 'extrapolate'}
        """
        values = {name: _plain(getattr(self, name)) for name in self.parameters}
        return {"name": self.name, "parameters": values, "fitted": self._fitted_config()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The map that ``to_config`` wrote."""
        feature_map = cls(**config["parameters"])
        if config["fitted"] is not None:
            feature_map._restore(config["fitted"])
        return feature_map

    @abstractmethod
    def _fitted_config(self) -> dict[str, Any] | None: ...

    @abstractmethod
    def _restore(self, fitted: dict[str, Any]) -> None: ...

    def _not_fitted(self, what: str) -> ValueError:
        return ValueError(f"{what} of {self!r} is learned from data: call fit(x) first")

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, FeatureMap)
        return self.to_config() == other.to_config()

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={shown(getattr(self, name))}" for name in self.parameters)
        return f"{type(self).__name__}({values})"


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def tensor64(values: Any) -> Tensor:
    """A float64 CPU tensor of plain numbers, the form in which maps keep what they learned."""
    return torch.tensor(values, dtype=torch.float64)
