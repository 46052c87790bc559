"""Files that are either whole or not there: written beside, synced, then renamed; checked when read.

A file is one safetensors file whose header carries the plain values as JSON and a SHA-256 of everything. Nothing in it
is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from restt._common.files import write_bytes_atomic

FORMAT = "restt-checkpoint-1"


class BadFile(ValueError):
    """A file that cannot be trusted; the message says which and why."""


def write_file(
    path: Path, tensors: Mapping[str, Tensor], plain: Mapping[str, Any], keep_as: Path | None = None
) -> None:
    """Write ``path`` so that it is at every moment the old file or the new one, never a part.

    The old file goes on as ``keep_as`` where given. Raises OSError with the old file untouched.
    """
    held = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    text = json.dumps(plain)
    header = {"format": FORMAT, "state": text, "sha256": _digest(held, text)}
    data = safetensors.torch.save(held, header)
    if keep_as is not None and path.exists():
        _keep(path, keep_as)
    write_bytes_atomic(path, data)


def remove_leftovers(path: Path) -> None:
    """Delete what a killed process had begun to write beside ``path``."""
    for leftover in path.parent.glob(f".{path.name}.*.part"):
        leftover.unlink(missing_ok=True)


def read_file(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and plain values of a file, or ``BadFile`` where it was cut, changed or written by something else."""
    data = path.read_bytes()
    try:
        tensors = safetensors.torch.load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__") or {}
    except (SafetensorError, ValueError, KeyError) as error:
        raise BadFile(f"{path} is truncated or not a safetensors file ({error})") from None
    if header.get("format") != FORMAT:
        raise BadFile(
            f"{path} was not written by this version of restt: its format is {header.get('format')!r}, "
            f"expected {FORMAT!r}"
        )
    text = header.get("state", "")
    if header.get("sha256") != _digest(tensors, text):
        raise BadFile(f"{path} was changed after it was written: its SHA-256 does not fit its contents")
    plain: dict[str, Any] = json.loads(text)
    return tensors, plain


def tensor_bytes(value: Tensor) -> Any:
    """The raw bytes of a tensor, whatever its dtype and device, as something hashlib takes."""
    return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"\0{name}\0{value.dtype}\0{tuple(value.shape)}\0".encode())
        digest.update(tensor_bytes(value))
    return digest.hexdigest()


def _keep(path: Path, keep_as: Path) -> None:
    """Give the file at ``path`` the second name ``keep_as``, so that it outlives its replacement."""
    link = keep_as.with_name(f".{keep_as.name}.link.part")
    link.unlink(missing_ok=True)
    try:
        os.link(path, link)
    except OSError:  # a file system without links: for a moment the file has only its second name
        os.replace(path, keep_as)
        return
    os.replace(link, keep_as)
    link.unlink(missing_ok=True)  # still there where both names already were the same file
