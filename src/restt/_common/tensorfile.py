"""Tensors and plain values in one safetensors file that is checked when read.

The header carries the values as JSON and a SHA-256 of everything.

Nothing in a file is ever executed, and nothing is allocated before its sizes were compared with the file's own length,
so that a damaged or hostile file costs no more than its bytes. Files are written whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from restt._common.errors import shown
from restt._common.files import whole_file

Digest = Callable[[str, Mapping[str, Tensor]], str]


class BadFile(ValueError):
    """A file that cannot be trusted; the message says which and why."""


class Kind(NamedTuple):
    """A file format: its ``format`` entry, and the header entry that holds the plain values."""

    format: str
    entry: str


@dataclass(frozen=True, eq=False)
class TensorFile:
    """A file whose header was read; :meth:`load` reads its tensors."""

    path: Path
    kind: Kind
    header: Mapping[str, str]
    data: bytes

    def load(self, digest: Digest | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return tensors and plain values; ``BadFile`` where they are not what was written."""
        try:
            tensors = safetensors.torch.load(self.data)
        except _UNREADABLE as error:
            raise BadFile(f"{self.path} is {_NOT_READABLE}: {shown(str(error))}") from None
        text = self.header.get(self.kind.entry, "")
        if self.header.get("sha256") != (digest or full_digest)(text, tensors):
            raise BadFile(
                f"{self.path} is damaged or was changed after it was written: its contents do not match their checksum"
            )
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadFile(f"{self.path} is damaged: its {self.kind.entry} is no JSON ({error})") from None
        if not isinstance(plain, dict):
            raise BadFile(f"{self.path} is damaged: its {self.kind.entry} is {shown(plain)}, expected named values")
        return tensors, plain


def write_file(
    path: Path,
    kind: Kind,
    tensors: Mapping[str, Tensor],
    plain: Mapping[str, Any],
    *,
    about: Mapping[str, str] | None = None,
) -> Path:
    """Write ``path`` so that it is at every moment the old file or the new one, never a part.

    ``about`` are more header entries, for people and for readers of other versions. Raises OSError with the old file
    untouched, TypeError where ``plain`` is not JSON-able.
    """
    own = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    text = json.dumps(plain)
    header = {"format": kind.format, **(about or {}), kind.entry: text, "sha256": full_digest(text, own)}
    with whole_file(path) as file:
        file.write(safetensors.torch.save(own, header))
    return path


def open_file(path: Path, kind: Kind) -> TensorFile:
    """Read a file and its header; ``BadFile`` where it was cut or is something else."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise BadFile(f"{path} is {_NOT_READABLE}: it has {len(data)} bytes, its header asks for {8 + length}")
    try:
        entries = json.loads(data[8 : 8 + length])
        header = entries.get("__metadata__") or {}
        whole = all(isinstance(value, str) for value in header.values())
    except _UNREADABLE as error:
        raise BadFile(f"{path} is {_NOT_READABLE}: {shown(str(error))}") from None
    if not whole or header.get("format") != kind.format:
        raise BadFile(
            f"{path} is a safetensors file, but not one written by restt in this format: its format is "
            f"{shown(header.get('format'))}, expected {kind.format!r}"
        )
    return TensorFile(path, kind, header, data)


def full_digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the plain values and of each tensor's name, dtype, shape and bytes."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"\0{name}\0{value.dtype}\0{tuple(value.shape)}\0".encode())
        digest.update(tensor_bytes(value))
    return digest.hexdigest()


def tensor_bytes(value: Tensor) -> Any:
    """Return the raw bytes of a tensor of any dtype and device in a form that hashlib takes."""
    return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


_NOT_READABLE = "not a readable safetensors file, or is cut short"
# What the safetensors library, the JSON reader and entries of the wrong type raise for bytes that are no such file.
_UNREADABLE = (
    SafetensorError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RuntimeError,
    OverflowError,
)
