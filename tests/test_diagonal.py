"""A train with diagonal cores against the dense train of the same cores and against the sum written out."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor

import restt
from restt import DiagonalTT, diagonal, products
from tests.diagonals import random_diagonal, random_rows

CASES = {
    "even": {"widths": [3, 3, 3, 3]},
    "ragged": {"widths": [2, 4, 1, 3, 2]},
    "one site": {"widths": [3]},
    "one output": {"widths": [2, 3, 2], "outputs": 1},
    "one row": {"widths": [2, 3], "rows": 1, "groups": 1},
    "runs": {"widths": [2, 3, 2], "runs": 1},
}


def contracted(module: DiagonalTT, x: Tensor) -> Tensor:  # (B, O)
    """The dense cores, site by site."""
    state = x.new_ones(len(x), 1)
    for n, core in enumerate(module.cores()):
        core = core if module.runs is None else core[0]
        features = torch.cat([x.new_ones(len(x), 1), x[:, n, : core.shape[1] - 1]], 1)
        state = torch.einsum("bl,lir,bi->br", state, core, features)
    return state


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_its_dense_cores(case: str) -> None:
    module = random_diagonal(**CASES[case])
    x, other = random_rows(module).requires_grad_(), random_rows(module).requires_grad_()
    found, expected = module(x), contracted(module, other)
    assert found.shape == ((5, module.outputs) if module.runs is None else (1, 5, module.outputs))
    torch.testing.assert_close(found.reshape(expected.shape), expected)
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    (found.reshape(expected.shape) * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(x.grad, other.grad)


@pytest.fixture(params=["C", "torch"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the products are computed by."""
    if request.param == "torch":
        monkeypatch.setattr(products, "_library", lambda x: None)
    return str(request.param)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("case", CASES)
def test_small_blocks_change_nothing(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = random_diagonal(**{**CASES[case], "rows": 40})
    x = random_rows(module, 9).requires_grad_()
    expected = module(x)
    (slope,) = torch.autograd.grad(expected.square().sum(), x)
    for name, value in (("_BLOCK", 1), ("_LARGEST_BATCH", 2), ("_CHUNK", 2), ("_SERIAL", 0)):
        monkeypatch.setattr(products, name, value)
    found = module(x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.square().sum(), x)[0], slope)


@pytest.mark.parametrize("case", CASES)
def test_it_is_affine_in_every_site(case: str) -> None:
    restt.testing.assert_multilinear(random_diagonal(**CASES[case]))


def test_it_is_the_sum_of_products_written_out() -> None:
    module = random_diagonal([2, 4, 3])
    x = random_rows(module)
    every = slice(None)
    values = [x[:, n, :width] @ module.factors(n, every).T for n, width in enumerate(module.feature_dims)]
    total = torch.stack(values).prod(0) @ module.coefficients.flatten(0, 1) + module.constant
    total += sum(x[:, n, : effect.shape[1]] @ effect.T for n, effect in enumerate(module.effects()))
    torch.testing.assert_close(module(x), total)


def test_a_float32_module_is_the_same_to_its_precision() -> None:
    module = random_diagonal([2, 3, 2])
    single = copy.deepcopy(module).float()
    x = random_rows(module)
    assert single.dtype == torch.float32
    assert single.code.dtype == torch.int32
    torch.testing.assert_close(single(x.float()), module(x).float(), rtol=1e-4, atol=1e-4)


def test_packed_rows_padding_and_no_rows() -> None:
    module = random_diagonal([2, 4, 3])
    x = random_rows(module)
    packed = torch.cat([x[:, n, :width] for n, width in enumerate(module.feature_dims)], 1)
    torch.testing.assert_close(module(packed), module(x))
    torch.testing.assert_close(module(x.masked_fill(module.padding, 7.0)), module(x))
    assert module(x[:0]).shape == (0, 2)


def test_it_can_be_read_like_a_residual_train() -> None:
    module = random_diagonal([2, 4, 3])
    assert (module.sites, module.feature_dims, module.feature_dim, module.outputs) == (3, (2, 4, 3), 4, 2)
    assert module.topology.name == "residual"
    assert module.bond_dim == 14
    held = 2 * (2 * 2 + 3 * 4 + 4 * 3) + 7 * 3 * 2 + 14 * 2 + 9 * 2 + 2
    assert module.num_parameters() == held
    again = pickle.loads(pickle.dumps(module))
    torch.testing.assert_close(again(random_rows(module)), module(random_rows(module)))
    torch.testing.assert_close(module.with_runs(1)(random_rows(module))[0], module(random_rows(module)))


def test_wrong_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = random_diagonal([2, 3])
    parts = [module.tables(), module.code, module.share, module.coefficients]
    with pytest.raises(ValueError, match=r"x has 3 sites \(axis -2 of shape \(5, 3, 3\)\), the module expects 2"):
        module(torch.zeros(5, 3, 3, dtype=torch.float64))
    with pytest.raises(TypeError, match="x has dtype torch"):
        module(torch.zeros(5, 2, 3))
    with pytest.raises(ValueError, match="code must be from 0 to the last vector"):
        DiagonalTT(parts[0], module.code + 3, *parts[2:])
    with pytest.raises(ValueError, match="share must be from 0 to 1, and 0 where code is the last"):
        DiagonalTT(*parts[:2], torch.ones_like(module.share), parts[3])
    with pytest.raises(ValueError, match=r"share must have shape \(7, 2\), got \(6, 2\)"):
        DiagonalTT(*parts[:2], module.share[:6], parts[3])
    with pytest.raises(ValueError, match="runs must be"):
        DiagonalTT(*parts, runs=2)
    monkeypatch.setattr(diagonal, "MOST_DENSE", 10)
    with pytest.raises(ValueError, match="dense cores of 14 products"):
        module.cores()
