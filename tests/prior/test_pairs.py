"""Covariances of pairs of rows: compiled, in torch, and written out, with their gradients."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest
import torch

from restt.chain.cpu import build
from restt.prior import pairs
from restt.prior.pairs import Rows, Tables, covariance, pull_back
from tests.chain.cpu.compiled import needs_compiler

RNG = np.random.default_rng(0)
WIDTHS = {"numbers": (6, 9), "categories": (3, 5), "one column": (7,), "all kinds": (6, 2, 4, 12), "one state": (1, 3)}
# Instruction set, what the processor must have
LEVELS = [("x86-64-v2", "sse4_2"), ("x86-64-v3", "avx2"), ("x86-64-v4", "avx512vl")]


def tables_of(widths: tuple[int, ...]) -> tuple[Tables, torch.Tensor]:
    """Symmetric tables, and scales."""
    parts = [torch.from_numpy(RNG.standard_normal((w, w, 4))) for w in widths]
    return Tables.of([0.5 * (part + part.transpose(0, 1)) for part in parts]), torch.tensor(
        [0.7, -1.2, 0.4, 1.5]
    ).double()


def rows_in(widths: tuple[int, ...], count: int) -> Rows:
    """Rows at states, the last of which (missing, average) have no next one, and between two states."""
    code = np.stack([RNG.integers(0, w, count) for w in widths], axis=1).astype(np.int32)
    share = np.where(RNG.random(code.shape) < 0.5, 0.0, RNG.random(code.shape))
    return Rows(torch.from_numpy(code), torch.from_numpy(np.where(code == np.array(widths) - 1, 0.0, share)))


def written_out(tables: Tables, scale: torch.Tensor, rows: Rows, others: Rows) -> torch.Tensor:
    plain, sizes = [table.numpy() for table in tables.split()], scale.numpy()
    found = np.zeros((len(rows), len(others)))
    for i in range(len(rows)):
        for j in range(len(others)):
            values = []
            for n, table in enumerate(plain):
                left, right = np.zeros(len(table) + 1), np.zeros(len(table) + 1)
                for vector, row, at in ((left, rows, i), (right, others, j)):
                    vector[int(row.code[at, n])] += 1 - float(row.share[at, n])
                    vector[int(row.code[at, n]) + 1] += float(row.share[at, n])
                values.append(right[:-1] @ np.tensordot(left[:-1], table, 1))
            products, total = np.prod(values, axis=0), np.sum(values, axis=0)
            found[i, j] = sizes[:3] @ products[:3] + sizes[3] * total[3]
    return torch.from_numpy(found)


def by_definition(tables, scale, rows, grad):
    """Gradients by automatic differentiation of whole matrices."""
    leaves = [table.clone().requires_grad_() for table in tables.split()]
    scales = scale.clone().requires_grad_()
    factors = torch.stack(
        [
            torch.einsum("bi,ijk,cj->bck", rows.vectors(n, len(t)), t, rows.vectors(n, len(t)))
            for n, t in enumerate(leaves)
        ]
    )
    matrix = factors[..., :3].prod(0) @ scales[:3] + factors[..., 3].sum(0) * scales[3]
    *by_table, by_scale = torch.autograd.grad((matrix * grad).sum(), [*leaves, scales])
    return by_table, by_scale


def symmetric(count: int) -> torch.Tensor:  # (B, B)
    matrix = torch.from_numpy(RNG.standard_normal((count, count)))
    return matrix + matrix.T


def symmetrised(parts):
    # Half of the pairs are visited: entries of a symmetric table that stand for each other may share in any way.
    return [part + part.transpose(0, 1) for part in parts]


@pytest.fixture(params=[pytest.param("compiled", marks=needs_compiler), "torch"])
def path(request, monkeypatch):
    if request.param == "torch":
        monkeypatch.setenv(build.DISABLE_VARIABLE, "1")
    assert (pairs._library(torch.ones(4)) is None) == (request.param == "torch")
    return request.param


@pytest.fixture
def threads(monkeypatch):
    """A function that sets torch's number of threads, which are used however small the work is."""
    before = torch.get_num_threads()
    monkeypatch.setattr(pairs, "_SERIAL", 0)
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", WIDTHS)
def test_covariances_are_those_of_the_definition(name, count, threads):
    threads(count)
    tables, scale = tables_of(WIDTHS[name])
    rows, others = rows_in(WIDTHS[name], 13), rows_in(WIDTHS[name], 8)
    expected = written_out(tables, scale, rows, others)
    torch.testing.assert_close(covariance(tables, scale, rows, others), expected, rtol=1e-12, atol=1e-12)
    own = covariance(tables, scale, rows)
    torch.testing.assert_close(own, written_out(tables, scale, rows, rows), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(own, own.T, rtol=1e-13, atol=1e-13)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", WIDTHS)
def test_gradients_are_those_of_automatic_differentiation(name, count, threads):
    threads(count)
    tables, scale = tables_of(WIDTHS[name])
    rows, grad = rows_in(WIDTHS[name], 17), symmetric(17)
    by_table, by_scale = pull_back(tables, scale, rows, grad)
    expected, scales = by_definition(tables, scale, rows, grad)
    for found, wanted in zip(symmetrised(tables.split(by_table)), symmetrised(expected), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(by_scale, scales, rtol=1e-11, atol=1e-11)


@pytest.mark.usefixtures("path")
def test_a_factor_of_zero_leaves_other_gradients_finite_and_right():
    tables, scale = tables_of((4, 3))
    tables.split()[0][:] = 0.0
    rows, grad = rows_in((4, 3), 10), torch.ones(10, 10, dtype=torch.float64)
    found, expected = pull_back(tables, scale, rows, grad)[0], by_definition(tables, scale, rows, grad)[0]
    assert expected[0].abs().max() > 1
    for one, wanted in zip(symmetrised(tables.split(found)), symmetrised(expected), strict=True):
        torch.testing.assert_close(one, wanted, rtol=1e-11, atol=1e-11)


def test_torch_takes_blocks_of_rows_as_it_takes_all(monkeypatch):
    monkeypatch.setenv(build.DISABLE_VARIABLE, "1")
    tables, scale = tables_of((6, 4))
    rows, grad = rows_in((6, 4), 30), symmetric(30)
    whole = covariance(tables, scale, rows), pull_back(tables, scale, rows, grad)[0]
    monkeypatch.setattr(pairs, "_BLOCK", 4 * 2 * 30 * 7)  # seven rows at a time
    blocks = covariance(tables, scale, rows), pull_back(tables, scale, rows, grad)[0]
    for found, wanted in zip(blocks, whole, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@needs_compiler
@pytest.mark.parametrize("among", [True, False])
def test_threads_change_no_bit_of_a_covariance(among, threads):
    widths = WIDTHS["all kinds"]
    tables, scale = tables_of(widths)
    rows, others = rows_in(widths, 61), None if among else rows_in(widths, 40)
    found = []
    for count in (1, 2, 3):
        threads(count)
        found.append(covariance(tables, scale, rows, others))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@needs_compiler
def test_columns_and_rows_may_come_from_views():
    tables, scale = tables_of((5, 4))
    rows = rows_in((5, 4), 20)
    some = torch.arange(0, 20, 2)
    expected = covariance(tables, scale, rows)[some][:, some]
    assert torch.equal(
        covariance(Tables.of([t.transpose(0, 1) for t in tables.split()]), scale, rows.take(slice(0, None, 2))),
        expected,
    )
    assert torch.equal(covariance(tables, scale, rows.take(some)), expected)


@needs_compiler
def test_no_memory_is_an_error(monkeypatch):
    tables, scale = tables_of((3,))
    monkeypatch.setattr(pairs, "_library", lambda scale: type("Full", (), {"pairs_forward": lambda *_: 1}))
    with pytest.raises(MemoryError, match="no memory"):
        covariance(tables, scale, rows_in((3,), 4))


def processor_flags() -> set[str]:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())


@needs_compiler
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="levels of x86-64 are asked for")
def test_every_instruction_set_gives_the_same_bits(tmp_path, monkeypatch):
    levels = [level for level, needed in LEVELS if needed in processor_flags()]
    if not levels:
        pytest.skip("the processor's instruction sets are not known")
    compiler = build.compilers()[0]
    monkeypatch.setattr(build, "compilers", lambda: [compiler])
    monkeypatch.setattr(build, "_cache_folder", lambda: tmp_path / "cache")
    widths = WIDTHS["all kinds"]
    tables, scale = tables_of(widths)
    rows, others = rows_in(widths, 50), rows_in(widths, 30)
    found = []
    try:
        for level in levels:
            # Tuned for AMD's processors GCC would fuse long vectors and not short ones.
            monkeypatch.setattr(build, "_TUNING", ((f"-march={level}", "-mtune=znver2"),))
            build._loaded.cache_clear()
            found.append((covariance(tables, scale, rows), covariance(tables, scale, rows, others)))
        kept = list((tmp_path / "cache").rglob("pairs-double-*"))
        assert len(kept) == len(levels)
    finally:
        build._loaded.cache_clear()
    for own, cross in found[1:]:
        assert torch.equal(own, found[0][0])
        assert torch.equal(cross, found[0][1])
