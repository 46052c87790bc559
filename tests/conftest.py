"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

# Tests use small tensors, where a second thread costs more than it saves, and on a busy machine spinning threads of
# several processes starve each other. Read by OpenMP when torch is first imported; tests of threads ask for them, and
# theirs sleep while they wait.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
import torch

from tests.hasty import hasty_solvers

# Without a GPU its kernels are tested under Triton's interpreter, which is chosen when triton is first imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Modules and tests stay to the end: the garbage collector need not look through them while they are collected, nor
# again with each of its rounds.
gc.disable()

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def shared_data_home() -> Iterator[None]:
    """Point RESTT_DATA_HOME at the data beside the repository where there is some."""
    with pytest.MonkeyPatch.context() as patch:
        if "RESTT_DATA_HOME" not in os.environ and SHARED_DATA.is_dir():
            patch.setenv("RESTT_DATA_HOME", str(SHARED_DATA))
        yield


@pytest.fixture(scope="session", autouse=True)
def engine_knows_the_gpu() -> None:
    """The first product in a thread of the autograd engine has torch tell that the thread had no CUDA context yet."""
    if torch.cuda.is_available():
        matrix = torch.ones(2, 2, device="cuda", requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (matrix @ matrix).sum().backward()


@pytest.fixture
def hasty() -> Iterator[None]:
    """The default solvers in a hurry."""
    with hasty_solvers():
        yield
