"""Damaged and crafted model files end in our own error, at no more cost than their length."""

import copy
import json
import random
import resource
import sys

import pytest
import safetensors.torch
import torch

import restt
from restt import interop
from restt._common.tensorfile import BadFile, full_digest, open_file
from restt.interop.storage import MODULE

# ru_maxrss counts kilobytes on Linux, bytes on macOS. What a hostile description asks for below is gigabytes.
MOST_MEMORY = 300 * 2**20 // (1 if sys.platform == "darwin" else 1024)

pytestmark = pytest.mark.filterwarnings("ignore")  # a mutant may describe an unstable module, which warns


@pytest.fixture
def original(tmp_path):
    module = restt.ResTT(4, [2, 3, 1, 2], 2, 2, bias=True, runs=2)
    module.reset_parameters(seed=0)
    return interop.save_module(module, tmp_path / "model.safetensors", {"note": [1, {"a": None}]})


def outcome(path):
    """The module, or None where the file was refused with our error; anything else escapes and fails the test."""
    try:
        module, extra = interop.load_module(path)
    except ValueError as error:
        if path.name not in str(error):
            raise
        return None
    assert isinstance(extra, dict)
    return module


def signed(path, content, tensors):
    """A file with this description whose checksum is right: what an attacker would write."""
    text = json.dumps(content)
    header = {"format": "restt-module", "format_version": "2", "restt": "1", "content": text}
    path.write_bytes(safetensors.torch.save(tensors, header | {"sha256": full_digest(text, tensors)}))


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_bytes_flipped_and_cut(original):
    data, expected = original.read_bytes(), interop.load_module(original)[0]
    draw = random.Random(0)
    header = 8 + int.from_bytes(data[:8], "little")
    before = peak()
    for number in range(400):
        mutant = bytearray(data)
        for _ in range(draw.choice((1, 1, 2, 8))):
            mutant[draw.randrange(header if number % 2 else len(data))] = draw.randrange(256)
        if number % 5 == 0:
            mutant = mutant[: draw.randrange(len(mutant))]
        original.write_bytes(bytes(mutant))
        module = outcome(original)
        if module is not None:  # only what says nothing about the module may have changed
            for name, value in expected.state_dict().items():
                assert torch.equal(module.state_dict()[name], value)
    assert peak() - before < MOST_MEMORY


VALUES = (
    None, True, 0, -1, 1, 2, 3, 4000, 2_000_000, 10**12, 2**63, 10**400, 1.5, float("nan"), float("inf"), "", "float64",
    "Tensor", "residual", [], [1], [True], [None] * 3, [10**9] * 4, {}, {"chains": []}, [[]], "__class__",
)  # fmt: skip


def places(value, path=()):
    """The path of every value inside nested dictionaries and lists."""
    yield path
    if isinstance(value, dict):
        for name, item in value.items():
            yield from places(item, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from places(item, (*path, number))


def test_descriptions_with_values_replaced(original):
    """Signed, so that nothing but the description's own sense stands in the way."""
    tensors, content = open_file(original, MODULE).load()
    draw = random.Random(1)
    found = list(places(content))
    before = peak()
    for number in range(700):
        mutant = copy.deepcopy(content)
        path = found[number % len(found)]
        if not path:
            mutant = draw.choice(VALUES)
        else:
            inner = mutant
            for step in path[:-1]:
                inner = inner[step]
            if draw.random() < 0.1:
                del inner[path[-1]]
            else:
                inner[path[-1]] = draw.choice(VALUES)
        signed(original, mutant, tensors)
        outcome(original)
    assert peak() - before < MOST_MEMORY


@pytest.mark.parametrize(
    "change",
    [
        {"bond_dim": 4000},
        {"runs": 2_000_000},
        {"outputs": 10**9},
        {"dtype": "Tensor"},
        {"dtype": "float64"},
        {"feature_dim": 2},
        {"sites": 10**9, "feature_dim": 1},
        {"feature_dim": [10**9] * 4},
        {"feature_dim": [2 * 10**8, 1, 1, 1]},
        {"runs": 2**62, "bond_dim": 2**62},
    ],
)
def test_crafted_sizes_are_refused_before_anything_is_allocated(original, change, monkeypatch):
    tensors, content = open_file(original, MODULE).load()
    signed(original, {**content, "module": content["module"] | change}, tensors)
    drawn, before = [], peak()
    monkeypatch.setattr(restt.ResTT, "reset_parameters", lambda self: drawn.append(self))
    with pytest.raises(ValueError, match=r"model\.safetensors does not describe a module this restt can build: .+"):
        interop.load_module(original)
    assert not drawn
    assert peak() - before < MOST_MEMORY


def test_many_sites_without_weights_are_refused(tmp_path):
    """Site vectors are as wide as the widest: of sites that have no weights, a file can name any number."""
    sites, wide = 2000, 4000
    dead = ["none"] * (sites - 2)
    topology = restt.Topology(sites, (False,) * (sites - 2) + (True,), (False,) * (sites - 1), (*dead, "none"))
    module = restt.ResTT(sites, [wide] + [1] * (sites - 1), 1, 1, topology, dtype=torch.float16)
    with pytest.raises(ValueError, match=f"{sites} sites as wide as {wide}"):
        interop.load_module(interop.save_module(module, tmp_path / "model.safetensors"))


def test_tensors_that_nobody_asked_for_are_refused(original):
    tensors, content = open_file(original, MODULE).load()
    for mutant in ({**tensors, "more": torch.ones(1)}, {k: v for k, v in tensors.items() if k != "bias"}):
        signed(original, content, mutant)
        with pytest.raises(ValueError, match="asks for the tensors"):
            interop.load_module(original)


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000,
        b'{"__metadata__": 3}',
        b'{"__metadata__": {"format": ["restt-module"]}}',
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
)
def test_headers_that_are_none(tmp_path, header):
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(
        BadFile, match=r"model\.safetensors is (not a readable safetensors file|a safetensors file, but)"
    ):
        open_file(path, MODULE)


@pytest.mark.parametrize("text", ["[" * 100_000, "[1]", "not JSON", "{'a': 1}"])
def test_plain_values_that_are_none(tmp_path, text):
    path = tmp_path / "model.safetensors"
    tensors = {"a": torch.ones(2)}
    header = {"format": "restt-module", "format_version": "2", "content": text, "sha256": full_digest(text, tensors)}
    path.write_bytes(safetensors.torch.save(tensors, header))
    with pytest.raises(BadFile, match=r"model\.safetensors is damaged: its content is"):
        interop.load_module(path)
