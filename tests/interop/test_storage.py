import json
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, safe_open, save_file
from torch.utils._python_dispatch import TorchDispatchMode

import restt
from restt import Topology, features, interop
from restt._common.tensorfile import full_digest
from restt.interop import storage
from tests.chain.parity import random_module
from tests.strategies import topologies


@pytest.fixture
def saved(tmp_path):
    module = restt.ResTT(4, 2, 3, 2)
    return interop.save_module(module, tmp_path / "model.safetensors", {"note": "kept"})


def rewritten(path, **changes):
    """The same tensors with other metadata."""
    with safe_open(path, "pt") as opened:
        metadata = opened.metadata()
    save_file(load_file(path), path, {**metadata, **changes})


def test_round_trip_is_exact(tmp_path):
    @settings(max_examples=40, deadline=None, derandomize=True, database=None)
    @given(
        topologies(1, 6),
        st.sampled_from([None, 1, 3]),
        st.booleans(),
        st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]),
        st.sampled_from(["balanced", "paper"]),
        st.data(),
    )
    def check(topology, runs, bias, dtype, init, data):
        widths = data.draw(st.lists(st.integers(1, 3), min_size=topology.sites, max_size=topology.sites))
        moments = data.draw(st.lists(st.floats(0.1, 9), min_size=topology.sites, max_size=topology.sites))
        options = {"bias": bias, "dtype": dtype, "init": init, "second_moment": moments}
        module = random_module(topology, widths, runs=runs, bond=3, outputs=2, **options)
        same, extra = interop.load_module(interop.save_module(module, tmp_path / "model.safetensors"))
        assert extra == {}
        assert (same.topology, same.feature_dims, same.runs) == (topology, module.feature_dims, runs)
        assert (same.init, same.extra_repr()) == (init, module.extra_repr())
        assert torch.equal(same.sigma2, module.sigma2)
        assert torch.equal(same.second_moment, module.second_moment)
        state, back = module.state_dict(), same.state_dict()
        assert list(state) == list(back)
        assert all(torch.equal(state[name], back[name]) and state[name].dtype == back[name].dtype for name in state)
        x = torch.randn(2, topology.sites, max(widths)).to(dtype)
        assert torch.equal(same(x), module(x))

    check()


def test_extra_travels_along(tmp_path):
    hat = features.Hat(5, placement="quantile").fit(torch.rand(50, 3, dtype=torch.float64))
    extra = {"feature_map": hat.to_config(), "classes": ["no", "ja – да"], "scale": 0.1, "none": None}
    module = restt.ResTT(3, hat.widths, 3, 1)
    _, back = interop.load_module(interop.save_module(module, tmp_path / "model.safetensors", extra))
    assert back == extra
    assert features.from_config(back["feature_map"]) == hat


def test_values_that_are_not_finite_survive(tmp_path):
    module = restt.ResTT(3, 2, 3, 1)
    with torch.no_grad():
        module.first[0, 0], module.first[0, 1] = float("nan"), -float("inf")
    same, _ = interop.load_module(interop.save_module(module, tmp_path / "model.safetensors"))
    assert torch.equal(same.first.view(torch.int32), module.first.view(torch.int32))


def test_shapes_are_compared_without_computing(tmp_path):
    """Torch would load its compiler for the first comparison on the device "meta", which takes longer than all else."""

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            if isinstance(found, torch.Tensor) and found.is_meta:
                seen.add(str(func))
            return found

    path, seen = interop.save_module(restt.ResTT(3, [2, 3, 1], 2, 1), tmp_path / "ragged.safetensors"), set()
    with Recorder():
        interop.load_module(path)
    assert seen
    assert seen <= {"aten.empty.memory_format", "aten._to_copy.default", "aten.detach.default"}


def test_loading_leaves_the_random_numbers_alone(saved):
    before = torch.random.get_rng_state()
    interop.load_module(saved)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_loading_needs_no_pickle(saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "pickle", None)
    module, extra = interop.load_module(saved)
    assert extra == {"note": "kept"}
    assert module.sites == 4


@pytest.mark.parametrize("version", ["3", "1", "", "x"])
def test_another_format_is_refused(saved, version):
    rewritten(saved, format_version=version, restt="9.0.0", content="{}")
    message = rf"model\.safetensors was saved in format version '{version}' by restt 9\.0\.0.*upgrade restt"
    with pytest.raises(ValueError, match=message):
        interop.load_module(saved)


def test_what_a_file_of_today_describes():
    """A change here needs a new version and a reader of the old one."""
    described = storage._described(restt.ResTT(2, [1, 2], 3, 1, Topology.plain(2), sigma2=0.5))
    assert described == {
        "sites": 2,
        "feature_dim": [1, 2],
        "bond_dim": 3,
        "outputs": 1,
        "topology": {"sites": 2, "chains": [True], "linears": [False], "skips": ["none"]},
        "sigma2": [0.5, 0.5],
        "second_moment": [1.0, 1.0],
        "init": "balanced",
        "bias": False,
        "runs": None,
        "dtype": "float32",
    }
    assert storage.FORMAT_VERSION == 2


def test_a_dtype_changed_in_the_header_is_noticed(tmp_path):
    path = interop.save_module(restt.ResTT(3, 2, 3, 1, dtype=torch.float64), tmp_path / "model.safetensors")
    content = path.read_bytes()
    assert b'"F64"' in content
    path.write_bytes(content.replace(b'"F64"', b'"I64"'))
    with pytest.raises(ValueError, match=r"model\.safetensors .*(checksum|int64)"):
        interop.load_module(path)


def test_a_shape_changed_in_the_header_is_noticed(saved):
    content = saved.read_bytes()
    assert content.count(b"[3,2]") >= 1
    saved.write_bytes(content.replace(b"[3,2]", b"[2,3]"))
    with pytest.raises(ValueError, match=r"model\.safetensors .*checksum"):
        interop.load_module(saved)


def test_truncated_at_any_length(saved):
    whole = saved.read_bytes()
    for kept in (0, 4, 8, 100, len(whole) // 2, len(whole) - 1):
        saved.write_bytes(whole[:kept])
        with pytest.raises(ValueError, match=r"model\.safetensors is not a readable safetensors file, or is cut short"):
            interop.load_module(saved)


def test_one_changed_bit_of_a_weight_is_noticed(saved):
    content = bytearray(saved.read_bytes())
    content[-3] ^= 1
    saved.write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged.*checksum"):
        interop.load_module(saved)


def test_changed_description_is_noticed(saved):
    with safe_open(saved, "pt") as opened:
        content = opened.metadata()["content"]
    rewritten(saved, content=content.replace('"bond_dim": 3', '"bond_dim": 4'))
    with pytest.raises(ValueError, match=r"damaged.*checksum"):
        interop.load_module(saved)


@pytest.mark.parametrize(
    "change",
    [{"bond_dim": 4}, {"init": "unheard-of"}, {"dtype": "int64"}, {"dtype": "nonsense"}, {"runs": 0}, {"surprise": 1}],
)
def test_description_that_does_not_fit(saved, change):
    tensors = load_file(saved)
    with safe_open(saved, "pt") as opened:
        held = json.loads(opened.metadata()["content"])
    held["module"].update(change)
    content = json.dumps(held)
    rewritten(saved, content=content, sha256=full_digest(content, tensors))
    with pytest.raises(ValueError, match=r"model\.safetensors does not describe a module this restt can build"):
        interop.load_module(saved)


def test_foreign_files(tmp_path):
    foreign = tmp_path / "foreign.safetensors"
    save_file({"weight": torch.ones(2)}, foreign)
    with pytest.raises(ValueError, match=r"foreign\.safetensors is a safetensors file, but not one written by restt"):
        interop.load_module(foreign)
    torch.save({"weight": torch.ones(2)}, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"model\.pt is not a readable safetensors file"):
        interop.load_module(tmp_path / "model.pt")


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.safetensors"):
        interop.load_module(tmp_path / "absent.safetensors")
    with pytest.raises(ValueError, match="is a folder"):
        interop.load_module(tmp_path)


def test_bad_arguments(tmp_path):
    module = restt.ResTT(2, 2, 2, 1)
    with pytest.raises(TypeError, match=r"module must be a restt\.ResTT"):
        interop.save_module(torch.nn.Linear(1, 1), tmp_path / "a")
    with pytest.raises(TypeError, match=r"extra must hold JSON-able values only.*Tensor"):
        interop.save_module(module, tmp_path / "a", {"x": torch.ones(1)})
    with pytest.raises(TypeError, match="extra must be a dict"):
        interop.save_module(module, tmp_path / "a", [1])
    with pytest.raises(ValueError, match="path must be a file, got the folder"):
        interop.save_module(module, "")
    assert list(tmp_path.iterdir()) == []
