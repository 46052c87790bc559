"""A module in one file: safetensors with a JSON description, so that reading it never runs code."""

from __future__ import annotations

import hashlib
import json
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from restt import __version__
from restt._common.errors import shown
from restt._common.files import write_bytes_atomic
from restt.module import ResTT
from restt.topology import Topology

FORMAT = "restt-module"
# Raised when a file of today could be misread by yesterday's code. Every version up to this one is readable.
FORMAT_VERSION = 1


def save_module(module: ResTT, path: str | PathLike[str], extra: dict[str, Any] | None = None) -> Path:
    """Write a module, and whatever JSON-able values should travel with it, to one safetensors file.

    The file is written whole or not at all. ``extra`` is for what the module does not know, for example
    ``{"feature_map": feature_map.to_config()}``; JSON makes lists of tuples and text of keys.

    >>> import restt, torch
    >>> from restt import features, interop
    >>> hat = features.Hat(knots=3).fit([[0.0], [1.0]])
    >>> model = restt.ResTT(sites=1, feature_dim=hat.widths, bond_dim=2, outputs=1)
    >>> path = getfixture("tmp_path") / "model.safetensors"
    >>> _ = interop.save_module(model, path, {"feature_map": hat.to_config()})
    >>> same, extra = interop.load_module(path)
    >>> torch.equal(same.first, model.first), features.from_config(extra["feature_map"]) == hat
    (True, True)
    """
    from safetensors.torch import save

    if not isinstance(module, ResTT):
        raise TypeError(f"module must be a restt.ResTT, got {shown(module)}")
    if extra is not None and not isinstance(extra, dict):
        raise TypeError(f"extra must be a dict of JSON-able values, got {shown(extra)}")
    try:
        content = json.dumps({"module": _described(module), "extra": extra or {}})
    except (TypeError, ValueError) as error:
        raise TypeError(f"extra must hold JSON-able values only: {error}") from None
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
    metadata = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "restt": __version__,
        "content": content,
        "sha256": _digest(content, tensors),
    }
    return write_bytes_atomic(path, save(tensors, metadata))


def load_module(path: str | PathLike[str]) -> tuple[ResTT, dict[str, Any]]:
    """The module that :func:`save_module` wrote, on the CPU, and the ``extra`` saved with it.

    FileNotFoundError where there is no such file; ValueError, with the file's name and what is wrong, for a file that
    is something else, damaged, or written by a newer format.
    """
    file = Path(path)
    if file.is_dir():
        raise ValueError(f"{file} is a folder, expected a file written by save_module")
    if not file.exists():
        raise FileNotFoundError(f"no such file: {file}")
    tensors, metadata = _read(file)
    _check_origin(file, metadata)
    content = metadata.get("content", "")
    if metadata.get("sha256") != _digest(content, tensors):
        raise ValueError(f"{file} is damaged: its contents do not match their checksum")
    try:
        held = json.loads(content)
        module = _rebuilt(held["module"])
        module.load_state_dict(tensors)
        return module, dict(held["extra"])
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{file} does not describe a module this restt can build: {error}") from error


def _described(module: ResTT) -> dict[str, Any]:
    topology = module.topology
    return {
        "sites": module.sites,
        "feature_dim": list(module.feature_dims),
        "bond_dim": module.bond_dim,
        "outputs": module.outputs,
        "topology": {"chains": topology.chains, "linears": topology.linears, "skips": topology.skips},
        "sigma2": module.sigma2.tolist(),
        "second_moment": module.second_moment.tolist(),
        "init": module.init,
        "bias": module.bias is not None,
        "runs": module.runs,
        "dtype": str(module.first.dtype).removeprefix("torch."),
    }


def _rebuilt(described: dict[str, Any]) -> ResTT:
    connections = described.pop("topology")
    dtype = getattr(torch, described.pop("dtype"))
    topology = Topology(described["sites"], connections["chains"], connections["linears"], connections["skips"])
    # A new module draws weights, which are replaced; reading a file must not move the caller's random numbers on.
    with torch.random.fork_rng(devices=[]):
        return ResTT(**described, topology=topology, dtype=dtype)


def _read(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}, opened.metadata() or {}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{file} is not a readable safetensors file, or is cut short: {error}") from error


def _check_origin(file: Path, metadata: dict[str, str]) -> None:
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{file} is a safetensors file, but not one written by restt's save_module")
    text = metadata.get("format_version", "")
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{file} is damaged: its format version is {shown(text)}")
    if int(text) > FORMAT_VERSION:
        raise ValueError(
            f"{file} was saved in format version {text} by restt {metadata.get('restt', '?')}; "
            f"this restt ({__version__}) reads up to version {FORMAT_VERSION}: upgrade restt to load it"
        )


def _digest(content: str, tensors: dict[str, Tensor]) -> str:
    """SHA-256 of the description and of every tensor: safetensors itself does not notice changed numbers."""
    digest = hashlib.sha256(content.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
