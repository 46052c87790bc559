"""The IDX format of the MNIST family: magic number, sizes, bytes."""

from __future__ import annotations

import gzip
import math
import struct
import zlib

import numpy as np
import torch
from torch import Tensor

UINT8 = 0x08
GZIP_MAGIC = b"\x1f\x8b"


def parse_idx(content: bytes, name: str, dimensions: int) -> Tensor:
    """An IDX file of unsigned bytes, gzipped or not, as a uint8 tensor; ``name`` is for error messages.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]), "labels", dimensions=1)
    tensor([7, 8, 9], dtype=torch.uint8)
    """
    if content[:2] == GZIP_MAGIC:
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{name} is not a whole gzip file: {error}") from None
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise ValueError(f"{name} is cut off: an IDX header has {header} bytes, got {len(content)}")
    expected = bytes([0, 0, UINT8, dimensions])
    if content[:4] != expected:
        raise ValueError(
            f"{name} must start with the IDX magic number 0x{expected.hex()} (unsigned bytes, {dimensions} "
            f"dimension(s)), got 0x{content[:4].hex()}"
        )
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    size = math.prod(shape)
    if len(content) - header != size:
        raise ValueError(f"{name} must have {size} bytes of data for shape {shape}, got {len(content) - header}")
    return torch.from_numpy(np.frombuffer(content, dtype=np.uint8, offset=header).copy()).view(shape)
