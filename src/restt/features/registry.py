"""Feature maps by name, and back from their configuration."""

from __future__ import annotations

from typing import Any

from restt._common.errors import check_choice, shown
from restt.features.base import FeatureMap
from restt.features.formulas import Affine, Identity, Polynomial, Trigonometric
from restt.features.hat import Hat
from restt.features.onehot import OneHot

MAPS: dict[str, type[FeatureMap]] = {
    kind.name: kind for kind in (Identity, Affine, Trigonometric, Polynomial, Hat, OneHot)
}


def available() -> tuple[str, ...]:
    """The names ``make`` knows.

    >>> available()
    ('identity', 'affine', 'trigonometric', 'polynomial', 'hat', 'onehot')
    """
    return tuple(MAPS)


def make(name: str, **parameters: Any) -> FeatureMap:
    """A feature map by name.

    >>> make("polynomial", degree=3)
    Polynomial(degree=3, include_bias=True, outside='extrapolate')
    """
    kind = MAPS[check_choice("name", name, MAPS)]
    unknown = sorted(set(parameters) - set(kind.parameter_names))
    if unknown:
        raise TypeError(f"{name} takes the parameters {list(kind.parameter_names)}, got {unknown}")
    return kind(**parameters)


def from_config(config: dict[str, Any]) -> FeatureMap:
    """The feature map that ``to_config`` wrote, with everything it had learned.

    >>> from restt.features import Hat
    >>> hat = Hat(knots=3).fit([[0.0], [1.0]])
    >>> from_config(hat.to_config()) == hat
    True
    """
    if not isinstance(config, dict) or not {"name", "parameters", "fitted"} <= set(config):
        raise ValueError(f"config must be a dict with name, parameters and fitted, got {shown(config)}")
    return MAPS[check_choice("config['name']", config["name"], MAPS)].from_config(config)
