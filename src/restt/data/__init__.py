"""Data sets by name, checked by hash, and streams of Parquet files.

>>> from restt import data
>>> diabetes = data.load("diabetes").split(random_state=0)
>>> diabetes.x_train.shape, diabetes.x_test.shape
(torch.Size([309, 10]), torch.Size([133, 10]))
"""

from __future__ import annotations

import importlib
import typing

if typing.TYPE_CHECKING:
    from restt.data.catalog import available
    from restt.data.dataset import Dataset
    from restt.data.loading import Description, describe, fetch, load
    from restt.data.parquet import Stream, stream

# Public name -> the module that defines it. Loaded on first use: a fit needs no catalogue of data sets.
_LAZY = {
    "Dataset": "dataset",
    "Description": "loading",
    "Stream": "parquet",
    "available": "catalog",
    "describe": "loading",
    "fetch": "loading",
    "load": "loading",
    "stream": "parquet",
}

__all__ = ["Dataset", "Description", "Stream", "available", "describe", "fetch", "load", "stream"]


def __getattr__(name: str) -> typing.Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'restt.data' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(f"restt.data.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
