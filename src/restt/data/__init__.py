"""Data sets by name, checked by hash, and streams of Parquet files.

>>> from restt import data
>>> diabetes = data.load("diabetes").split(random_state=0)
>>> diabetes.x_train.shape, diabetes.x_test.shape
(torch.Size([309, 10]), torch.Size([133, 10]))
"""

from __future__ import annotations

from restt.data.catalog import Description, available
from restt.data.dataset import Dataset
from restt.data.loading import describe, fetch, load
from restt.data.parquet import Stream, stream

__all__ = ["Dataset", "Description", "Stream", "available", "describe", "fetch", "load", "stream"]
