"""The interface of feature maps, and maps by name."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from restt._common.errors import check_choice, shown
from restt._common.files import plain_json

MAPS: dict[str, type[FeatureMap]] = {}  # by name; every kind that has one adds itself


class RangeWarning(UserWarning):
    """Values outside the range of a map: different ones become the same site vector."""


class FeatureMap(nn.Module, ABC):
    """Columns or pixels to site vectors: (B, N) -> (B, N, I).

    ``fit`` learns ranges, knots or levels and returns the map; ``transform`` (also by calling the map) applies it.
    Maps that need nothing learned transform without ``fit``.

    A map is a torch module without weights, so it goes in front of a model. What it learned is part of the state
    dict, exactly, whatever dtype the model is moved to; results follow the dtype and device of x.

    >>> import torch, restt
    >>> model = restt.ResTT(sites=3, feature_dim=2, bond_dim=4, outputs=1)
    >>> torch.nn.Sequential(restt.features.Trigonometric(), model)(torch.rand(5, 3)).shape
    torch.Size([5, 1])

    Two maps are equal when they are of one kind and their parameters and what they learned are equal.
    """

    name: ClassVar[str]
    parameter_names: ClassVar[tuple[str, ...]]

    _fitted: dict[str, Any] | None = None  # learned values, as JSON has them; None before ``fit``

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in cls.__dict__:
            MAPS[cls.name] = cls

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

    def forward(self, x: Any) -> Tensor:
        """``transform(x)``."""
        return self.transform(x)

    def to_config(self) -> dict[str, Any]:
        """Parameters and learned values as JSON-able values; floats survive the round trip exactly.

        >>> from restt import features
        >>> features.Polynomial(degree=2).to_config()["parameters"]
        {'degree': 2, 'include_bias': True, 'outside': 'extrapolate'}
        """
        values = {name: plain_json(getattr(self, name)) for name in self.parameter_names}
        return {"name": self.name, "parameters": values, "fitted": self._fitted}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The map that ``to_config`` wrote."""
        feature_map = cls(**config["parameters"])
        feature_map._fitted = config["fitted"]
        return feature_map

    def get_extra_state(self) -> Tensor:
        """Learned values for the state dict: JSON as bytes, which every file format for tensors can hold."""
        learned = json.dumps(self._fitted).encode()
        return torch.from_numpy(np.frombuffer(learned, dtype=np.uint8).copy())

    def set_extra_state(self, state: Tensor) -> None:
        """The reverse of :meth:`get_extra_state`."""
        self._fitted = json.loads(state.cpu().numpy().tobytes())

    def _learned_tensor(self, name: str) -> Tensor:  # float64, on the CPU
        """Learned values; ``name`` is their name in ``to_config`` and in an error before ``fit``."""
        if self._fitted is None:
            raise self._not_fitted(name)
        return tensor64(self._fitted[name])

    def _not_fitted(self, what: str) -> ValueError:
        return ValueError(f"{what} of {self!r} is learned from data: call fit(x) first")

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, FeatureMap)
        return self.to_config() == other.to_config()

    def __hash__(self) -> int:
        # Equal maps must have equal hashes, and torch's containers hash their modules; of a map that may yet be fitted
        # only the kind stays.
        return hash(type(self))

    def extra_repr(self) -> str:
        """Parameters, for torch's representation."""
        return ", ".join(f"{name}={shown(getattr(self, name))}" for name in self.parameter_names)


def available() -> tuple[str, ...]:
    """Names of the maps.

    >>> from restt import features
    >>> features.available()
    ('identity', 'affine', 'polynomial', 'trigonometric', 'hat', 'onehot')
    """
    return tuple(MAPS)


def make(name: str, **parameters: Any) -> FeatureMap:
    """A feature map by name.

    >>> from restt import features
    >>> features.make("polynomial", degree=3)
    Polynomial(degree=3, include_bias=True, outside='extrapolate')
    """
    kind = MAPS[check_choice("name", name, MAPS)]
    unknown = sorted(set(parameters) - set(kind.parameter_names))
    if unknown:
        raise TypeError(f"{name} takes the parameters {list(kind.parameter_names)}, got {unknown}")
    return kind(**parameters)


def from_config(config: dict[str, Any]) -> FeatureMap:
    """The feature map that ``to_config`` wrote, with everything it had learned.

    >>> from restt import features
    >>> hat = features.Hat(knots=3).fit([[0.0], [1.0]])
    >>> features.from_config(hat.to_config()) == hat
    True
    """
    if not isinstance(config, dict) or not {"name", "parameters", "fitted"} <= set(config):
        raise ValueError(f"config must be a dict with name, parameters and fitted, got {shown(config)}")
    return MAPS[check_choice("config['name']", config["name"], MAPS)].from_config(config)


def rows_of(values: Any) -> list[Any]:
    """A row for each site from one for all sites or a list of them, given as sequences, arrays or tensors."""
    given = values.tolist() if isinstance(values, (np.ndarray, Tensor)) else list(values)
    nested = len(given) > 0 and isinstance(given[0], (list, tuple, np.ndarray, Tensor))
    return [row.tolist() if isinstance(row, (np.ndarray, Tensor)) else row for row in (given if nested else [given])]


def tensor64(values: Any) -> Tensor:
    """A float64 CPU tensor of plain numbers, the form in which maps keep what they learned."""
    return torch.tensor(values, dtype=torch.float64)
