import pytest
import torch

from restt._common.tensorfile import BadFile, Kind, full_digest, open_file, write_file

KIND = Kind("a-kind", "values")
TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor(True), "c": torch.zeros(0, 2, dtype=torch.bfloat16)}


def test_what_was_written_comes_back(tmp_path):
    path = write_file(tmp_path / "new" / "file", KIND, TENSORS, {"text": "да", "none": None}, about={"made by": "me"})
    opened = open_file(path, KIND)
    tensors, plain = opened.load()
    assert plain == {"text": "да", "none": None}
    assert opened.header["made by"] == "me"
    assert tensors.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert torch.equal(tensors[name], value)
        assert tensors[name].dtype == value.dtype


@pytest.mark.parametrize(
    "change",
    [
        {"a": TENSORS["a"].view(3, 2)},
        {"a": TENSORS["a"].view(torch.int32)},
        {"a": TENSORS["a"] + 1},
        {"d": TENSORS["a"]},
    ],
    ids=["shape", "dtype", "bytes", "name"],
)
def test_the_checksum_covers_name_dtype_shape_and_bytes(change):
    assert full_digest("{}", TENSORS | change) != full_digest("{}", TENSORS)
    assert full_digest("{ }", TENSORS) != full_digest("{}", TENSORS)


def test_another_kind_is_refused(tmp_path):
    path = write_file(tmp_path / "file", KIND, TENSORS, {})
    with pytest.raises(BadFile, match=r"file is a safetensors file, but not .* its format is 'a-kind', expected 'b'"):
        open_file(path, Kind("b", "values"))
