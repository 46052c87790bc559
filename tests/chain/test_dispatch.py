import subprocess
import sys

import pytest
import torch

import restt
from restt import Topology
from restt.chain import dispatch
from restt.chain.cpu import build, contraction
from restt.chain.dispatch import choose
from tests.chain.cpu.compiled import needs_compiler


@pytest.fixture
def uncompiled(monkeypatch):
    monkeypatch.setenv(build.DISABLE_VARIABLE, "1")
    monkeypatch.setattr(contraction, "_libraries", {})  # what is loaded is not asked about again


def inputs(sites=5, bond=4, batch=6, runs=None, dtype=torch.float32, **options):
    module = restt.ResTT(sites, 2, bond, 1, runs=runs, dtype=dtype, **options)
    return torch.rand(1, batch, sites, 2, dtype=dtype), module.weights(), module.topology


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_where_it_can_be(dtype):
    assert choose(*inputs(dtype=dtype))[0] == "fused_cpu"


def test_eager_for_types_without_kernels():
    name, reason = choose(*inputs(dtype=torch.bfloat16))
    assert name == "eager"
    assert "bfloat16" in reason


@pytest.mark.usefixtures("uncompiled")
def test_without_compiled_code_everything_still_works():
    name, reason = choose(*inputs())
    assert name == "eager"
    assert build.DISABLE_VARIABLE in reason
    module = restt.ResTT(5, 2, 4, 1)
    x = torch.rand(6, 5, 2)
    with restt.chain.backend("reference"):
        expected = module(x)
    torch.testing.assert_close(module(x), expected)


@needs_compiler
def test_code_that_does_not_compile_is_said_once_and_done_without(tmp_path, monkeypatch):
    broken, found_compilers = tmp_path / "broken.c", build.compilers()
    broken.write_text("this is no C\n")
    monkeypatch.setattr(build, "SOURCE", broken)
    monkeypatch.setattr(build, "_cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(build, "compilers", lambda: found_compilers[:1])  # all refuse alike, some after seconds
    monkeypatch.setattr(contraction, "_libraries", {})
    module, x = restt.ResTT(5, 2, 4, 1), torch.rand(6, 5, 2)
    build._loaded.cache_clear()
    build._warn_once.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="did not compile here, so it runs on plain torch"):
            found = module(x)
        again = module(x)  # in silence: a second warning would be an error here
    finally:
        build._loaded.cache_clear()
        build._warn_once.cache_clear()
    with restt.chain.backend("reference"):
        torch.testing.assert_close(found, module(x))
    assert torch.equal(found, again)


def test_forced_backend_that_cannot_raises_with_the_reason(monkeypatch):
    module = restt.ResTT(4, 2, 3, 1, dtype=torch.bfloat16)
    expected = 'forced chain backend "fused_cpu" .* it takes float32 and float64'
    with restt.chain.backend("fused_cpu"), pytest.raises(RuntimeError, match=expected):
        module(torch.rand(2, 4, 2, dtype=torch.bfloat16))
    monkeypatch.setenv(build.DISABLE_VARIABLE, "1")
    monkeypatch.setattr(contraction, "_libraries", {})
    with restt.chain.backend("fused_cpu"), pytest.raises(RuntimeError, match=build.DISABLE_VARIABLE):
        restt.ResTT(4, 2, 3, 1)(torch.rand(2, 4, 2))


def test_unknown_backend():
    with pytest.raises(ValueError, match="backend must be one of"), restt.chain.backend("fast"):
        pass


def test_auto_gives_the_choice_back(monkeypatch):
    taken = []
    monkeypatch.setattr(dispatch, "choose", lambda *given: taken.append(1) or ("eager", ""))
    module, x = restt.ResTT(4, 2, 3, 1), torch.rand(2, 4, 2)
    with restt.chain.backend("reference"):
        module(x)
        assert not taken
        with restt.chain.backend("auto"):
            module(x)
    assert taken == [1]


def test_transforms_of_torch_func_work():
    module = restt.ResTT(4, 2, 3, 1, dtype=torch.float64)
    x = torch.rand(3, 4, 2, dtype=torch.float64)
    one = torch.func.grad(lambda sample: module(sample[None]).sum())
    whole = x.clone().requires_grad_()
    module(whole).sum().backward()
    torch.testing.assert_close(torch.func.vmap(one)(x), whole.grad)


def test_a_cpu_tensor_never_loads_triton():
    code = """
import sys, torch, restt
restt.ResTT(3, 2, 4, 1)(torch.rand(2, 3, 2)).sum().backward()
print([name for name in sys.modules if "triton" in name or "restt.chain.cuda" in name])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "restt.chain.cuda" not in found.stdout
    assert "'triton'" not in found.stdout


class TestExplain:
    def test_a_module_and_its_input(self):
        module = restt.ResTT(4, 3, 5, 1, runs=2, topology=Topology.plain(4), dtype=torch.float64)
        text = restt.chain.explain(module, torch.rand(7, 4, 3, dtype=torch.float64))
        assert text.startswith("N=4 I=3 r=5 B=7 S=2 torch.float64 on cpu: ")
        assert "not fused_cuda: it runs on CUDA devices, x is on cpu" in text

    def test_every_backend_is_accounted_for(self):
        lines = restt.chain.explain(restt.ResTT(5, 2, 7, 1), torch.rand(3, 5, 2)).splitlines()
        others = {line.split()[1].rstrip(":") for line in lines[2:]}
        assert others | {lines[0].split()[-1]} == set(restt.chain.BACKENDS)

    @pytest.mark.usefixtures("uncompiled")
    def test_names_what_is_missing(self):
        text = restt.chain.explain(restt.ResTT(5, 2, 7, 1), torch.rand(3, 5, 2))
        assert text.splitlines()[0].endswith("eager")
        assert build.DISABLE_VARIABLE in text

    def test_an_input_that_does_not_fit(self):
        with pytest.raises(ValueError, match="x has 5 sites"):
            restt.chain.explain(restt.ResTT(4, 2, 3, 1), torch.rand(7, 5, 2))


def test_kernels_that_an_old_triton_cannot_compile_are_refused(monkeypatch):
    triton = pytest.importorskip("triton")
    from restt.chain.cuda import contraction

    monkeypatch.setattr(triton, "__version__", "3.3.1")
    monkeypatch.setattr(contraction, "triton_problem", contraction.triton_problem.__wrapped__)
    module = restt.ResTT(4, 2, 3, 1)
    with (
        restt.chain.backend("fused_cuda"),
        pytest.raises(RuntimeError, match=r"need triton 3\.6, which torch 2\.11 brings, not 3\.3\.1"),
    ):
        module(torch.rand(5, 4, 2))
