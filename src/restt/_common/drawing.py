"""Figures: matplotlib where it is installed, files that are whole or absent."""

from __future__ import annotations

import io
from os import PathLike
from pathlib import Path
from typing import Any

from restt._common.files import write_bytes_atomic


def require_matplotlib() -> Any:
    """Return matplotlib.pyplot; ImportError names the extra to install."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as missing:
        raise ImportError("drawing needs matplotlib: pip install 'restt[plot]'") from missing
    return plt


def save_figure(figure: Any, path: str | PathLike[str], **options: Any) -> Path:
    """Save a matplotlib figure whole or not at all; the file's ending picks the format, png where it has none."""
    target = Path(path)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=target.suffix.lower().lstrip(".") or "png", dpi=150, **options)
    return write_bytes_atomic(target, buffer.getvalue())
