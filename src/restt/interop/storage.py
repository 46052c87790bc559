"""A module in one file: safetensors with a JSON description, so that reading it never runs code."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from restt._common.errors import check_int, check_new_file, shown
from restt._common.tensorfile import Kind, TensorFile, open_file, write_file
from restt._common.version import __version__
from restt.diagonal import FLOATS, DiagonalTT
from restt.init import undrawn
from restt.module import ResTT
from restt.topology import Topology

MODULE = Kind("restt-module", "content")
# What a train with diagonal cores is described as; other modules say no kind.
DIAGONAL = "diagonal"
# Raised when a file of today could be misread by yesterday's code. Files of 0.8 have version 2; only 0.1 wrote another.
FORMAT_VERSION = 2
DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
# Site vectors may have this many times as many entries as there are weights: sites without any are allowed.
MOST_PADDED = 64
# What a description of the wrong shape or type runs into.
_MISFITS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def save_module(module: ResTT | DiagonalTT, path: str | PathLike[str], extra: dict[str, Any] | None = None) -> Path:
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
    if not isinstance(module, (ResTT, DiagonalTT)):
        raise TypeError(f"module must be a restt.ResTT or restt.DiagonalTT, got {shown(module)}")
    if extra is not None and not isinstance(extra, dict):
        raise TypeError(f"extra must be a dict of JSON-able values, got {shown(extra)}")
    target = check_new_file("path", path)
    try:
        json.dumps(extra)
    except (TypeError, ValueError) as error:
        raise TypeError(f"extra must hold JSON-able values only: {error}") from None
    about = {"format_version": str(FORMAT_VERSION), "restt": __version__}
    return write_file(
        target, MODULE, module.state_dict(), {"module": _described(module), "extra": extra or {}}, about=about
    )


def load_module(path: str | PathLike[str]) -> tuple[ResTT | DiagonalTT, dict[str, Any]]:
    """The module that :func:`save_module` wrote, on the CPU, and the ``extra`` saved with it.

    FileNotFoundError where there is no such file; ValueError, with the file's name and what is wrong, for a file that
    is something else, damaged, or written by a newer format. Sizes are compared with what the file holds before
    anything is allocated, so that no file costs more than its own length.
    """
    file = Path(path)
    if file.is_dir():
        raise ValueError(f"{file} is a folder, expected a file written by save_module")
    if not file.exists():
        raise FileNotFoundError(f"no such file: {file}")
    opened = open_file(file, MODULE)
    _check_version(opened)
    tensors, plain = opened.load()
    try:
        module = _rebuilt(plain["module"], tensors)
        return module, dict(plain["extra"])
    except _MISFITS as error:
        raise ValueError(f"{file} does not describe a module this restt can build: {error}") from error


def _described(module: ResTT | DiagonalTT) -> dict[str, Any]:
    if isinstance(module, DiagonalTT):
        return {
            "kind": DIAGONAL,
            "feature_dim": list(module.feature_dims),
            "vectors": list(module.vector_counts),
            "runs": module.runs,
            "dtype": str(module.dtype).removeprefix("torch."),
        }
    return {
        "sites": module.sites,
        "feature_dim": list(module.feature_dims),
        "bond_dim": module.bond_dim,
        "outputs": module.outputs,
        "topology": module.topology.to_config(),
        "sigma2": module.sigma2.tolist(),
        "second_moment": module.second_moment.tolist(),
        "init": module.init,
        "bias": module.bias is not None,
        "runs": module.runs,
        "dtype": str(module.first.dtype).removeprefix("torch."),
    }


def _rebuilt(described: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> ResTT | DiagonalTT:
    if described.get("kind") == DIAGONAL:
        return _rebuilt_diagonal(described, tensors)
    options = dict(described)
    # A number here would be multiplied by the number of sites, which nothing in the file bounds.
    if not isinstance(options["feature_dim"], list):
        raise TypeError(f"feature_dim must be a list with one width per site, got {shown(options['feature_dim'])}")
    options["topology"] = Topology.from_config(options["topology"])
    if options["dtype"] not in DTYPES:
        raise ValueError(f"dtype must be one of {sorted(DTYPES)}, got {shown(options['dtype'])}")
    options["dtype"] = DTYPES[options["dtype"]]
    # Weights come from the file: drawing some takes longer than reading, and would move the caller's random numbers on.
    with undrawn():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the module itself warns below
            outline = ResTT(**options, device="meta")  # shapes alone: nothing is allocated
        _check_tensors(outline.state_dict(), tensors)
        padded, numbers = outline.sites * outline.feature_dim, sum(value.numel() for value in tensors.values())
        if padded > MOST_PADDED * numbers:
            raise ValueError(
                f"it asks for {outline.sites} sites as wide as {outline.feature_dim}, of {numbers} numbers"
            )
        module = ResTT(**options)
    module.load_state_dict(tensors)
    return module


def _rebuilt_diagonal(described: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> DiagonalTT:
    """A train with diagonal cores; nothing that is made of the file is larger than it."""
    sizes = [[check_int(name, size, minimum=1) for size in described[name]] for name in ("feature_dim", "vectors")]
    if set(tensors) != {*FLOATS, "code"} or described["dtype"] not in DTYPES:
        raise ValueError(f"it is of dtype {shown(described['dtype'])} and holds {sorted(tensors)}")
    for name in FLOATS:
        if tensors[name].dtype != DTYPES[described["dtype"]]:
            raise ValueError(f"{name} is {tensors[name].dtype}, described as {shown(described['dtype'])}")
    table, effect, coefficients = tensors["table"], tensors["effect"], tensors["coefficients"]
    shapes = [(len(coefficients), count, width) for width, count in zip(*sizes, strict=True)]
    lengths = [math.prod(shape) for shape in shapes]
    if table.dim() != 1 or sum(lengths) != len(table) or effect.dim() != 2 or sum(sizes[0]) != effect.shape[1]:
        raise ValueError(f"its factor vectors are {tuple(table.shape)} and main effects {tuple(effect.shape)}")
    if len(shapes) * max(sizes[0]) > MOST_PADDED * sum(value.numel() for value in tensors.values()):
        raise ValueError(f"it asks for {len(shapes)} sites as wide as {max(sizes[0])}")
    parts = [part.view(shape) for part, shape in zip(table.split(lengths), shapes, strict=True)]
    effects = effect.split(sizes[0], 1)
    given = (tensors["code"], tensors["share"], coefficients, effects, tensors["constant"])
    return DiagonalTT(parts, *given, runs=described["runs"])


def _check_tensors(wanted: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """The file must hold exactly the tensors that its description asks for."""
    if set(wanted) != set(tensors):
        raise ValueError(f"it asks for the tensors {sorted(wanted)}, the file holds {sorted(tensors)}")
    for name, value in wanted.items():
        expected, given = (f"{tuple(tensor.shape)} of {tensor.dtype}" for tensor in (value, tensors[name]))
        if expected != given:
            raise ValueError(f"it asks for {name} of shape {expected}, the file holds {given}")


def _check_version(file: TensorFile) -> None:
    text, writer = file.header.get("format_version", ""), file.header.get("restt", "?")
    if text != str(FORMAT_VERSION):
        raise ValueError(
            f"{file.path} was saved in format version {shown(text)} by restt {writer}; this restt ({__version__}) "
            f"reads version {FORMAT_VERSION}: upgrade restt to load a newer file, fit the model of an older one again"
        )
