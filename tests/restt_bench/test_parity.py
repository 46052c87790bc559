import io

import pytest
import torch
from rich.console import Console

import restt_bench as bench
from restt import ResTT, Topology
from restt.chain import eager
from restt_app import cli
from restt_bench.case import Case
from restt_bench.implementation import Implementation
from restt_bench.ours import Ours
from restt_bench.parity import ALLOWED, ParityError, allowed_of, check, relative_error, require_parity

SMALL = Case(sites=5, bond_dim=3, outputs=2, batch=4)


def contract_with_wrong_gradient(x, weights, topology, widths=()):
    """Right output, but the core's gradient comes out double."""
    doubled = weights.chain * 2 - weights.chain.detach()
    return eager_contract(x, weights._replace(chain=doubled), topology)


def contract_with_wrong_output(x, weights, topology, widths=()):
    return eager_contract(x, weights, topology) * 1.001


eager_contract = eager.contract


@pytest.fixture
def quiet():
    return Console(file=io.StringIO(), width=120)


def test_a_sound_backend_passes():
    [found] = require_parity([Ours("eager")], [SMALL], seed=0)
    assert found.passed
    assert found.implementation == "eager"


def test_a_wrong_gradient_is_found_and_named(monkeypatch):
    monkeypatch.setattr(eager, "contract", contract_with_wrong_gradient)
    with pytest.raises(ParityError, match="eager differs from the reference; worst in 'chain'") as caught:
        require_parity([Ours("reference"), Ours("eager")], [SMALL], seed=0)
    [failure] = caught.value.failures
    assert failure.tensor == "chain"
    assert failure.error == pytest.approx(1.0, rel=1e-3)


def test_an_output_off_by_a_thousandth_is_red(monkeypatch):
    monkeypatch.setattr(eager, "contract", contract_with_wrong_output)
    assert not check(Ours("eager"), SMALL, seed=0).passed


def test_a_backend_that_raises_is_red_not_skipped(monkeypatch):
    def raising(x, weights, topology, widths=()):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(eager, "contract", raising)
    with pytest.raises(ParityError, match="eager raised RuntimeError: no such kernel"):
        require_parity([Ours("eager")], [SMALL], seed=0)


def test_run_neither_times_nor_prints_nor_saves_while_parity_is_red(monkeypatch, quiet, tmp_path):
    monkeypatch.setattr(eager, "contract", contract_with_wrong_gradient)
    monkeypatch.setattr(bench.runner, "time_case", lambda *_: pytest.fail("timed in spite of red parity"))
    with pytest.raises(ParityError, match="chain"):
        bench.run(["main"], quick=True, threads=1, output=tmp_path, console=quiet)
    assert quiet.file.getvalue() == ""
    assert list(tmp_path.iterdir()) == []


def test_the_command_ends_with_an_error_while_parity_is_red(monkeypatch, capsys):
    monkeypatch.setattr(eager, "contract", contract_with_wrong_gradient)
    monkeypatch.setattr("sys.argv", ["restt", "bench", "main", "--quick", "--threads", "1"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 1
    printed = capsys.readouterr()
    assert "parity is red" in printed.err
    assert "'chain'" in printed.err
    assert printed.out == ""


def test_what_an_implementation_cannot_run_is_not_checked():
    class Refusing(Implementation):
        name = "refusing"

        def refusal(self, case):
            return "not today"

        def compared(self, case, seed):
            raise AssertionError("asked although it refused")

    assert require_parity([Refusing()], [SMALL], seed=0) == []


def test_relative_error_does_not_hide_small_tensors():
    tiny = torch.full((3,), 1e-9)
    assert relative_error(tiny * 2, tiny) == pytest.approx(1.0)
    assert relative_error(tiny[:2], tiny) == float("inf")
    assert relative_error(tiny * 0, tiny * 0) == 0.0


def test_the_check_keeps_the_bond_and_shrinks_the_rest():
    small = Case(bond_dim=100, runs=64, batch=512, sites=10_000).scaled_down()
    assert (small.bond_dim, small.runs) == (100, 3)
    assert small.sites < 100
    assert small.batch % 2 == 1


def cut_to_tf32(values):
    """What a tensor core reads of float32 operands: the last 13 bits are not there."""
    return (values.float().view(torch.int32) & ~0x1FFF).view(torch.float32).double()


def what_cut_operands_lose(sites, seed):
    module = ResTT(sites, 2, 20, 3, Topology.plain(sites))
    module.reset_parameters(seed=seed)
    x = torch.rand(33, sites, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = [module.first, *module.chain, module.last_chain]
    exact, cut = ((x[:, 0] @ module.first.double()).detach() for _ in range(2))
    for n, core in enumerate(weights[1:], start=1):
        features, core = x[:, n], core.detach()
        exact = torch.einsum("bk,bi,iko->bo", exact, features, core.double())
        cut = torch.einsum("bk,bi,iko->bo", cut_to_tf32(cut), features, cut_to_tf32(core))
    return relative_error(cut, exact)


@pytest.mark.parametrize("sites", [20, 40])
def test_what_cut_operands_lose_grows_with_the_products(sites):
    # The last bits of a draw depend on the processor, and one draw's error on them, by a tenth; their mean does not.
    errors = [what_cut_operands_lose(sites, seed) for seed in range(10)]
    assert sum(errors) / 10 == pytest.approx((sites - 1) * 6.8e-4, rel=0.1)
    assert min(errors) > ALLOWED["tf32"]
    assert max(errors) <= allowed_of("tf32", Topology.plain(sites))


def test_sites_that_add_do_not_raise_the_bound():
    assert allowed_of("tf32", Topology.residual(300)) == ALLOWED["tf32"]
    assert allowed_of("float32", Topology.plain(300)) == ALLOWED["float32"]
