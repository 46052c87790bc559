"""The module among torch's own tools: each works, or says what to use instead."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from safetensors.torch import load_model, save_model
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import parametrizations, parametrize, prune
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import restt
from restt import Topology
from restt.init import undrawn

SITES = 8  # of exported modules
# Some of torch's tools are written with deprecated functions of its own.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


def made(**options) -> restt.ResTT:
    module = restt.ResTT(5, 2, 3, 2, dtype=torch.float64, **options)
    module.reset_parameters(seed=1)
    return module


@pytest.fixture
def module():
    return made()


@pytest.fixture
def x():
    return torch.rand(4, 5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def short(x):
    """A module that is compiled sooner, and its rows."""
    module = restt.ResTT(3, 2, 3, 2, dtype=torch.float64)
    module.reset_parameters(seed=1)
    return module, x[:, :3]


@pytest.fixture(autouse=True)
def fresh_compiler():
    yield
    torch.compiler.reset()


class TestTransforms:
    def test_vmap_over_models(self, x):
        modules = [restt.ResTT(5, 2, 3, 2, dtype=torch.float64) for _ in range(3)]
        state = torch.func.stack_module_state(modules)
        skeleton = copy.deepcopy(modules[0]).to("meta")
        run = torch.func.vmap(lambda *state: torch.func.functional_call(skeleton, state, (x,)))
        assert_close(run(*state), torch.stack([module(x) for module in modules]))

    def test_vmap_over_samples(self, module, x):
        assert_close(torch.func.vmap(lambda sample: module(sample[None])[0])(x), module(x))

    def test_gradients_of_each_sample(self, module, x):
        def loss(parameters, sample):
            return torch.func.functional_call(module, parameters, (sample[None],)).square().sum()

        each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(dict(module.named_parameters()), x)
        module(x).square().sum().backward()
        for name, parameter in module.named_parameters():
            assert_close(each[name].sum(0), parameter.grad)

    def test_jacobians(self, module, x):
        assert_close(torch.func.jacrev(module)(x), torch.func.jacfwd(module)(x))

    def test_forward_mode(self, module, x):
        direction = torch.rand_like(x)
        _, expected = torch.autograd.functional.jvp(module, x, direction)
        assert_close(torch.func.jvp(module, (x,), (direction,))[1], expected)
        with forward_ad.dual_level():
            found = forward_ad.unpack_dual(module(forward_ad.make_dual(x, direction))).tangent
        assert_close(found, expected)

    def test_transforms_inside_a_compiled_function(self, short):
        module, x = short
        gradient = torch.func.grad(lambda x: module(x).square().sum())
        assert_close(torch.compile(gradient, fullgraph=True, backend="aot_eager")(x), gradient(x))

    def test_the_second_derivative_of_a_compiled_module(self, short):
        """Torch refuses it of what its compiler made; of a function that differentiates inside it is compiled."""
        module, x = short

        def penalty(function):
            point = x.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(function(point).square().sum(), point, create_graph=True)
            return torch.autograd.grad(gradient.square().sum(), point)[0]

        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        with pytest.raises(RuntimeError, match="does not currently support double backward"):
            penalty(compiled)

        def inside(x):
            gradient = torch.func.grad(lambda x: module(x).square().sum())
            return torch.func.grad(lambda x: gradient(x).square().sum())(x)

        assert_close(torch.compile(inside, fullgraph=True, backend="aot_eager")(x), penalty(module))


class TestExport:
    @pytest.mark.parametrize("widths", [2, [2, 9] + [1] * (SITES - 2)], ids=["even", "packed"])
    @pytest.mark.parametrize("strict", [False, True])
    def test_with_any_number_of_samples(self, strict, widths):
        module = restt.ResTT(SITES, widths, 3, 2, bias=True)
        any_batch, shape = ({0: torch.export.Dim("batch")},), (SITES, module.feature_dim)
        program = torch.export.export(module, (torch.rand(4, *shape),), dynamic_shapes=any_batch, strict=strict)
        for batch in (1, 9):
            x = torch.rand(batch, *shape)
            assert_close(program.module()(x), module(x))
        # It is to run where there is no restt.
        assert not [node for node in program.graph.nodes if "restt" in str(node.target)]

    def test_torchscript(self):
        module, x = restt.ResTT(20, 2, 3, 2), torch.rand(9, 20, 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of shapes and of its own deprecation
            traced = torch.jit.trace(module, torch.rand(4, 20, 2))
        assert_close(traced(x), module(x))


class TestWeights:
    def test_copies(self, module, x):
        expected = module(x)
        assert_close(copy.deepcopy(module)(x), expected)
        assert_close(pickle.loads(pickle.dumps(module))(x), expected)

    def test_parametrisations(self, module, x):
        class Halved(nn.Module):
            def forward(self, weight):
                return weight / 2

        halved = copy.deepcopy(module)
        with torch.no_grad():
            halved.chain.div_(2)
        parametrize.register_parametrization(module, "chain", Halved())
        assert_close(module(x), halved(x))
        module(x).sum().backward()
        halved(x).sum().backward()
        assert_close(module.parametrizations.chain.original.grad, halved.chain.grad / 2)
        parametrize.remove_parametrizations(module, "chain")
        assert_close(module(x), halved(x))

    def test_weight_norm_changes_nothing_at_first(self, module, x):
        expected = module(x)
        parametrizations.weight_norm(module, "chain")
        assert_close(module(x), expected)

    def test_pruning(self, module, x):
        prune.l1_unstructured(module, "chain", amount=0.5)
        output = module(x)
        output.square().sum().backward()
        pruned = module.chain_mask == 0
        assert pruned.sum() == pruned.numel() // 2
        assert (module.chain_orig.grad[pruned] == 0).all()
        assert (module.chain_orig.grad[~pruned] != 0).any()
        prune.remove(module, "chain")
        assert_close(module(x), output)

    def test_safetensors_by_name(self, module, x, tmp_path):
        save_model(module, str(tmp_path / "model.safetensors"))
        other = restt.ResTT(5, 2, 3, 2, dtype=torch.float64)
        load_model(other, str(tmp_path / "model.safetensors"))
        assert torch.equal(other(x), module(x))

    def test_moving_average(self, module, x):
        average = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(0.5))
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        start = module.chain.detach().clone()
        average.update_parameters(module)
        module(x).square().sum().backward()
        optimizer.step()
        average.update_parameters(module)
        assert_close(average.module.chain, (start + module.chain) / 2)
        assert average(x).shape == (4, 2)


class TestDeferred:
    @pytest.mark.parametrize("widths", [2, [1, 2, 2, 1, 2]])
    def test_made_on_meta_and_filled_later(self, widths):
        with torch.device("meta"):
            module = restt.ResTT(5, widths, 3, 2, bias=True)
        assert {parameter.device.type for parameter in module.parameters()} == {"meta"}
        assert module(torch.rand(4, 5, 2, device="meta")).shape == (4, 2)
        module = module.to_empty(device="cpu")
        module.reset_parameters(seed=3)
        expected = restt.ResTT(5, widths, 3, 2, bias=True)
        expected.reset_parameters(seed=3)
        x = torch.rand(4, 5, 2)
        assert torch.equal(module(x), expected(x))

    def test_drawn_with_a_seed_alone(self):
        before = torch.random.get_rng_state()
        with undrawn():
            module = restt.ResTT(5, [1, 2, 2, 1, 2], 3, 2, bias=True)
        assert torch.equal(torch.random.get_rng_state(), before)
        expected = restt.ResTT(5, [1, 2, 2, 1, 2], 3, 2, bias=True)
        assert not torch.equal(torch.random.get_rng_state(), before)
        for made in (module, expected):
            made.reset_parameters(seed=3)
        x = torch.rand(4, 5, 2)
        assert torch.equal(module(x), expected(x))

    @pytest.mark.parametrize("assign", [False, True])
    def test_filled_from_a_file(self, assign):
        widths, x = [1, 2, 2, 1, 2], torch.rand(4, 5, 2)
        expected = restt.ResTT(5, widths, 3, 2)
        module = restt.ResTT(5, widths, 3, 2, device="meta")
        if not assign:
            module = module.to_empty(device="cpu")
        module.load_state_dict(expected.state_dict(), assign=assign)
        assert torch.equal(module(x), expected(x))

    def test_skip_init(self, x):
        module = nn.utils.skip_init(restt.ResTT, 5, 2, 3, 2)
        module.reset_parameters(seed=0)
        assert module(x.float()).isfinite().all()

    def test_a_default_device_is_followed(self):
        with torch.device("meta"):
            assert restt.ResTT(3, 2, 3, 2, device="cpu").first.device.type == "cpu"


class TestTraining:
    @pytest.mark.parametrize("use_reentrant", [False, True])
    def test_checkpoint(self, module, x, use_reentrant):
        module(x).square().sum().backward()
        expected = module.chain.grad.clone()
        module.zero_grad()
        x = x.clone().requires_grad_()
        checkpoint(module, x, use_reentrant=use_reentrant).square().sum().backward()
        assert_close(module.chain.grad, expected)

    def test_accumulated_and_clipped_gradients(self, module, x):
        module(x).sum().backward()
        expected = module.chain.grad.clone()
        module.zero_grad()
        for part in x.split(3):
            module(part).sum().backward()
        assert_close(module.chain.grad, expected)
        nn.utils.clip_grad_norm_(module.parameters(), 1e-3)
        norms = torch.stack([parameter.grad.norm() for parameter in module.parameters()])
        assert_close(norms.norm(), torch.tensor(1e-3, dtype=torch.float64), rtol=1e-3, atol=0)

    def test_among_other_layers(self):
        model = nn.Sequential(restt.features.Trigonometric(), restt.ResTT(5, 2, 3, 4), nn.ReLU(), nn.Linear(4, 1))
        model(torch.rand(7, 5)).sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())


class TestAutocast:
    @pytest.fixture(params=["auto", "eager", "reference"])
    def backend(self, request):
        with restt.chain.backend(request.param):
            yield request.param

    @pytest.mark.usefixtures("backend")
    @pytest.mark.parametrize("runs", [None, 2])
    def test_outputs_have_the_type_of_torchs_own_layers(self, runs):
        module = restt.ResTT(30, 2, 8, 3, Topology.residual(30), bias=True, runs=runs)
        x = torch.rand(6, 30, 2)
        exact = module(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = module(x)
            assert output.dtype == nn.Linear(2, 2)(x).dtype == torch.bfloat16
            assert module(x.bfloat16()).dtype == torch.bfloat16
        # States are not rounded, so the error is that of one rounding and not of thirty.
        assert_close(output.float(), exact, rtol=2**-8, atol=1e-6)
        output.sum().backward()
        assert module.chain.grad.dtype == torch.float32

    def test_a_layer_before_it(self):
        model = nn.Sequential(nn.Linear(10, 10), nn.Unflatten(1, (5, 2)), restt.ResTT(5, 2, 3, 2, bias=True))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(torch.rand(4, 10))
        assert output.dtype == torch.bfloat16
        output.sum().backward()
        assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())

    def test_compiled(self):
        module, x = restt.ResTT(5, 2, 3, 2), torch.rand(4, 5, 2)
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        assert compiled(x).dtype == torch.float32
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(compiled(x), module(x))
            assert compiled(x).dtype == torch.bfloat16

    def test_inside_a_compiled_function(self):
        module, x = restt.ResTT(5, 2, 3, 2), torch.rand(4, 5, 2)

        def function(x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                inside = module(x)
            return inside, module(x)

        inside, outside = torch.compile(function, fullgraph=True, backend="aot_eager")(x)
        assert (inside.dtype, outside.dtype) == (torch.bfloat16, torch.float32)

    def test_float64_is_left_alone(self, module, x):
        expected = module(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(module(x), expected)

    def test_without_it_types_must_agree(self):
        with pytest.raises(TypeError, match=r"x has dtype torch\.bfloat16"):
            restt.ResTT(5, 2, 3, 2)(torch.rand(4, 5, 2).bfloat16())

    def test_the_gpu_kernels_round_their_products(self):
        from restt.chain.precision import current_precision

        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert current_precision("cpu") == "bf16"
            with restt.chain.precision("tf32"):
                assert current_precision("cpu") == "tf32"
        with torch.autocast("cpu", dtype=torch.float16):
            assert current_precision("cpu") == "fp16"
        assert current_precision("cpu") == "float32"
