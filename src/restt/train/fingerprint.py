"""What makes two trainings the same: data and parameters, entry by entry, so that a refusal can name what differs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from restt._common.tensorfile import tensor_bytes
from restt.train.config import TrainConfig
from restt.train.rows import Rows


def fingerprint(
    module: nn.Module,
    config: TrainConfig,
    rows: Rows,
    validation: Rows | None,
    feature_map: Any,
    extra: Mapping[str, Any],
) -> dict[str, Any]:
    """Entries of JSON values. Initial weights and a seed not given are left out: the checkpoint has its own."""
    entries: dict[str, Any] = dict(config.to_dict())
    entries["module"] = _module_entry(module)
    entries["feature_map"] = _function_entry(feature_map)
    for prefix, data in (("", rows), ("validation ", validation)):
        if data is not None:
            entries[f"{prefix}x"] = _tensor_entry(data.x)
            entries[f"{prefix}y"] = _tensor_entry(data.target)
            entries[f"{prefix}sample_weight"] = _tensor_entry(data.weight)
            entries[f"{prefix}subset"] = _tensor_entry(data.index)
            entries[f"{prefix}rows per run"] = list(data.sizes)
        else:
            entries[f"{prefix}x"] = None
    return entries | {name: _plain(value) for name, value in extra.items()}


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One line per entry that is not the same.

    >>> differences({"lr": 0.1, "epochs": 3}, {"lr": 0.2, "epochs": 3})
    ['lr: 0.1 in the checkpoint, 0.2 now']
    """
    lines = []
    for name in [*saved, *(name for name in now if name not in saved)]:
        before, after = saved.get(name), now.get(name)
        if before != after:
            lines.append(f"{name}: {before} in the checkpoint, {after} now")
    return lines


def _module_entry(module: nn.Module) -> str:
    shapes = ", ".join(f"{name}{tuple(value.shape)}" for name, value in module.state_dict().items())
    dtype = next(module.parameters()).dtype
    parts = [f"{type(module).__name__} {dtype} {shapes}"]
    topology = getattr(module, "topology", None)
    if topology is not None:
        parts.append(f"topology {_short_hash(repr((topology.chains, topology.linears, topology.skips)).encode())}")
    widths = getattr(module, "feature_dims", None)
    if widths is not None:
        parts.append(f"widths {_short_hash(repr(widths).encode())}")
    return "; ".join(parts)


def _function_entry(function: Any) -> Any:
    if function is None:
        return None
    if hasattr(function, "to_config"):
        return _plain(function.to_config())
    if hasattr(function, "__qualname__"):
        return f"{function.__module__}.{function.__qualname__}"
    return type(function).__qualname__


def _tensor_entry(value: Tensor | None) -> str | None:
    if value is None:
        return None
    return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')} #{_short_hash(tensor_bytes(value))}"


def _short_hash(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """As JSON gives it back, so that a saved entry compares equal to a fresh one."""
    if isinstance(value, Tensor):
        return _tensor_entry(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (torch.dtype, torch.device)):
        return str(value)
    return value
