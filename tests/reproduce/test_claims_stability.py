import json

from restt import reproduce


def test_both_topologies_are_trained_over_sigma2_and_seeds(tmp_path):
    # Quick, on real images: needs MNIST, and skips with the loader's message where it is missing.
    import pytest

    from restt import data

    try:
        data.load("mnist", download=False)
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    paths = reproduce.run("claims-stability", "quick", tmp_path, device="cpu")
    assert [path.name for path in paths] == ["claims-stability-quick.json"]
    found = json.loads(paths[0].read_text())
    assert found["sites"] == 196
    assert {row["topology"] for row in found["over_sigma2"]} == {"plain", "residual"}
    assert len(found["over_sigma2"]) == 2 * len(found["setting"]["sigma2"])
    residual = next(row for row in found["over_seeds"] if row["topology"] == "residual")
    assert residual["mean"] > 30  # chance is 10
    assert len(residual["final_test_accuracy"]) == found["setting"]["seeds"]
