from __future__ import annotations

import json

import pytest

from restt.reproduce import fig_meanfield, fig_trainability
from restt.reproduce.meanfield_tables import DRAWN

pytest.importorskip("matplotlib")

TINY = fig_meanfield.Setting(
    sites=12,
    bond_dim=6,
    runs=40,
    batch=2,
    widths=(4, 8),
    width_runs=20,
    plain_sites=30,
    residual_sites=40,
    gradient_bond_dim=4,
    gradient_runs=3,
)
TINY_MAP = fig_trainability.MapSetting("digits", 200, (2,), 6, 12, lr=1e-2, sigma2=(1e-3, 1.0))


def test_pictures_and_numbers(tmp_path, monkeypatch):
    monkeypatch.setitem(fig_meanfield.SETTINGS, "quick", TINY)
    monkeypatch.setitem(fig_trainability.SETTINGS, "quick", TINY_MAP)
    fig_meanfield.run("quick", tmp_path)
    saved = json.loads((tmp_path / "meanfield-quick.json").read_text())
    # Beside the paper's pictures, not in their place.
    assert {path.name for path in tmp_path.glob("*.png")} == {f"{name}-quick.png" for name in DRAWN}
    agreement = saved["theory_against_measurement"]
    assert len(agreement) == 9
    for case in agreement.values():
        assert case["q_steps"]["largest_profile_z"] < 5
        assert case["chi_steps"]["largest_profile_z"] < 5
        assert len(case["measured_log_q"]) == len(case["predicted_log_q"]) == 12
    assert saved["finite_width"][0]["log_median"] < saved["finite_width"][0]["log_mean"]
    reached = {(cell["model"], cell["sigma2"]): cell["training_accuracy"] for cell in saved["trainability"]["cells"]}
    assert reached["ResTT", 1e-3] > 0.5
    assert reached["TT", 1e-3] < 0.3


def test_unknown_profile_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"profile must be one of \['paper', 'quick'\], got 'full'"):
        fig_meanfield.run("full", tmp_path)
