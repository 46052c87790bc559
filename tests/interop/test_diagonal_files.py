"""Files of trains with diagonal cores: exact, and refused with our own error where they are damaged or crafted."""

import copy
import random

import pytest
import torch

from restt import DiagonalTT, interop
from restt._common.tensorfile import open_file
from restt.interop.storage import MODULE
from tests.diagonals import random_diagonal, random_rows
from tests.interop.test_hostile_files import VALUES, outcome, places, signed


@pytest.fixture
def original(tmp_path):
    module = random_diagonal([2, 3, 1, 2], runs=1)
    return interop.save_module(module, tmp_path / "model.safetensors", {"note": [1, {"a": None}]})


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_round_trip_is_exact(tmp_path, dtype):
    module = random_diagonal([2, 4, 3], dtype=dtype)
    path = interop.save_module(module, tmp_path / "model.safetensors", {"a": 1})
    same, extra = interop.load_module(path)
    assert isinstance(same, DiagonalTT)
    assert extra == {"a": 1}
    assert (same.feature_dims, same.vector_counts, same.runs) == (module.feature_dims, module.vector_counts, None)
    for name, value in module.state_dict().items():
        assert torch.equal(same.state_dict()[name], value)
    x = random_rows(module)
    assert torch.equal(same(x), module(x))


def test_a_changed_description_is_refused_or_changes_nothing_that_is_held(original):
    tensors, content = open_file(original, MODULE).load()
    refused = 0
    for place in places(content["module"]):
        for value in VALUES:
            crafted = copy.deepcopy(content)
            inner = crafted["module"]
            for step in place[:-1]:
                inner = inner[step]
            if place:
                inner[place[-1]] = value
            else:
                crafted["module"] = value
            signed(original, crafted, tensors)
            module = outcome(original)
            refused += module is None
            if isinstance(module, DiagonalTT):
                assert all(torch.equal(module.state_dict()[name], held) for name, held in tensors.items())
    assert refused > 100


def test_changed_tensors_are_refused_or_make_a_module_that_predicts(original):
    tensors, content = open_file(original, MODULE).load()
    draw = random.Random(0)
    for number in range(200):
        name = draw.choice(sorted(tensors))
        value = tensors[name].clone()
        if number % 3 == 0:
            value = value.flatten()[: draw.randrange(value.numel())]
        elif number % 3 == 1:
            value.view(-1)[draw.randrange(value.numel())] = draw.choice([-1, 2**30, 7])
        else:
            value = value.to(draw.choice([torch.float32, torch.int64, torch.float64, torch.int32]))
        signed(original, content, {**tensors, name: value})
        module = outcome(original)
        if module is not None:
            assert bool(module(random_rows(module)).isfinite().all())
