"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session", autouse=True)
def shared_data_home() -> Iterator[None]:
    """Point RESTT_DATA_HOME at the data beside the repository where there is some."""
    with pytest.MonkeyPatch.context() as patch:
        if "RESTT_DATA_HOME" not in os.environ and SHARED_DATA.is_dir():
            patch.setenv("RESTT_DATA_HOME", str(SHARED_DATA))
        yield
