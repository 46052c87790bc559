"""A lone sample goes another way through the compiled products, to the same bits at every level of vectors."""

import platform
from pathlib import Path

import pytest
import torch

from restt import ResTT, chain
from restt.chain.cpu import build, contraction
from tests.chain.cpu.compiled import needs_compiler

pytestmark = needs_compiler

CASES = [
    # sites, width, bond, outputs, topology, runs
    (20, 8, 20, 1, "residual", 1),
    (7, 32, 24, 3, "residual", 2),
    (5, 3, 7, 5, "plain", 1),
    (2, 2, 1, 1, "residual", 1),
    (6, 5, 30, 26, "volterra", 3),
    (4, 4, 23, 2, "linear", 1),
]


# Instruction set, whether it multiplies and adds at once, what the processor must have
LEVELS = [
    ("x86-64-v2", False, "sse4_2"),
    ("x86-64-v3", True, "avx2"),
    ("x86-64-v3", False, "avx2"),
    ("x86-64-v4", True, "avx512vl"),
    ("x86-64-v4", False, "avx512vl"),
]


def made(case, dtype):
    sites, width, bond, outputs, topology, runs = case
    torch.manual_seed(0)
    module = ResTT(sites, width, bond, outputs, topology, runs=runs, dtype=dtype)
    return module, torch.randn(5, sites, width, dtype=dtype)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_alone_as_among_others(case, dtype):
    module, x = made(case, dtype)
    with torch.no_grad(), chain.backend("fused_cpu"):
        alone = torch.cat([module(sample) for sample in x.split(1)], dim=1)
        assert torch.equal(alone, module(x))


def processor_flags():
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())


@pytest.fixture
def build_for(tmp_path, monkeypatch):
    """A function that has the kernel built by one compiler with these flags alone."""

    def rebuild(compiler, flags):
        monkeypatch.setattr(build, "compilers", lambda: [compiler])
        monkeypatch.setattr(build, "_TUNING", (flags,))
        forget()

    def forget():
        build._loaded.cache_clear()
        contraction._libraries.clear()
        contraction._planned.cache_clear()

    monkeypatch.setattr(build, "_cache_folder", lambda: tmp_path / "cache")
    yield rebuild
    forget()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="levels of x86-64 are asked for")
@pytest.mark.parametrize(
    ("kind", "dtype"), [("system", torch.float32), ("system", torch.float64), ("ziglang", torch.float32)]
)
def test_at_every_level_of_vectors(kind, dtype, build_for):
    if kind == "ziglang" and build._zig() is None:
        pytest.skip("the extra is not installed: pip install restt[fast]")
    compiler = build.compilers()[-1 if kind == "ziglang" else 0]
    levels = [(level, fused) for level, fused, needed in LEVELS if needed in processor_flags()]
    if not levels:
        pytest.skip("the processor's instruction sets are not known")
    found = {True: [], False: []}
    for level, fused in levels if kind == "system" else levels[:2]:  # ziglang takes five seconds for each
        # Tuned for AMD's processors GCC would fuse long vectors and not short ones; zig takes a tuning for the target.
        target = [f"-march={level.replace('-', '_')}"] if compiler[-1] == "cc" else [f"-march={level}", "-mtune=znver2"]
        build_for(compiler, (*target, "-mfma" if fused else "-mno-fma"))
        for case in CASES:
            module, x = made(case, dtype)
            with torch.no_grad(), chain.backend("fused_cpu"):
                alone, together = torch.cat([module(sample) for sample in x.split(1)], dim=1), module(x)
            assert torch.equal(alone, together), (level, fused, case)
        found[fused].append(together)
    # No more depends on the level than whether products are rounded before they are added.
    assert all(torch.equal(output, outputs[0]) for outputs in found.values() for output in outputs)
    if found[True]:
        assert not torch.equal(found[True][0], found[False][0])


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_one_sample(case):
    module, x = made(case, torch.float64)
    found = []
    for name in ("fused_cpu", "reference"):
        sample = x[:1].clone().requires_grad_()
        with chain.backend(name):
            found.append(torch.autograd.grad(module(sample).square().sum(), [sample, *module.parameters()]))
    for fused, reference in zip(*found, strict=True):
        torch.testing.assert_close(fused, reference, rtol=1e-10, atol=1e-10)
