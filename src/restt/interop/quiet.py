"""Torch's exporters without their remarks."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

TALKATIVE = ("torch.onnx", "torch.export", "torch._export", "onnx_ir", "onnxscript")


@contextmanager
def quiet_exporters() -> Iterator[None]:
    """Hold back what torch's exporters say about their own workings; their errors still come through."""
    loggers = [
        logging.getLogger(name) for name in ("torch.onnx", "torch.export", "torch._export", "onnx_ir", "onnxscript")
    ]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
