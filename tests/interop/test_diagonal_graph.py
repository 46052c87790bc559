"""Exported graphs of trains with diagonal cores."""

import pytest
import torch

from restt import interop
from restt.interop import graph_parts
from tests.diagonals import random_diagonal, random_rows
from tests.interop.helpers import assert_onnx_agrees, assert_same

CASES = {
    "ragged": {"widths": [2, 4, 1, 3]},
    "one site": {"widths": [3]},
    "runs": {"widths": [2, 3], "runs": 1, "outputs": 1},
    "float32": {"widths": [2, 3], "dtype": torch.float32},
}


@pytest.mark.parametrize("block", [3, 1024])
@pytest.mark.parametrize("case", CASES)
def test_onnx_agrees(case, block, tmp_path, monkeypatch):
    monkeypatch.setattr(graph_parts, "PRODUCTS_AT_ONCE", block)
    module = random_diagonal(**CASES[case])
    tolerance = 1e-5 if module.dtype == torch.float32 else 1e-12
    for rows in (1, 6, 0):
        assert_onnx_agrees(tmp_path, module, random_rows(module, rows), tolerance=tolerance)


@pytest.mark.parametrize("case", CASES)
def test_the_torch_program_agrees(case, tmp_path, monkeypatch):
    monkeypatch.setattr(graph_parts, "PRODUCTS_AT_ONCE", 5)
    module = random_diagonal(**CASES[case])
    program = torch.export.load(interop.export(module, tmp_path / "model.pt2")).module()
    for rows in (1, 6):
        x = random_rows(module, rows)
        assert_same(program(x), module(x), 1e-5 if module.dtype == torch.float32 else 1e-12)
