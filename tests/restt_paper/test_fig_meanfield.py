from __future__ import annotations

import pytest

import restt_paper as reproduce
from restt_paper import fig_meanfield, fig_trainability
from restt_paper.store import Store

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
    reproduce.run("fig-meanfield", "quick", tmp_path)
    (cell,) = fig_meanfield.cells("quick")
    saved = Store(tmp_path).load(cell)["result"]
    drawn = reproduce.pictures_of("fig-meanfield", "quick", tmp_path)
    assert [path.name for path in drawn] == [f"fig-meanfield-{name}.png" for name in fig_meanfield.DRAWN]
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
    agrees = reproduce.tables_of("fig-meanfield", "quick", tmp_path)[0]
    assert {row[-1] for row in agrees.rows} == {"yes"}


def test_nothing_is_measured_where_nothing_can_be_drawn(tmp_path, monkeypatch):
    def missing():
        raise ImportError("drawing needs matplotlib")

    monkeypatch.setattr(fig_meanfield, "require_matplotlib", missing)
    monkeypatch.setattr(fig_meanfield, "predict", lambda *_: pytest.fail("measured first"))
    with pytest.raises(ImportError, match="needs matplotlib"):
        reproduce.run("fig-meanfield", "quick", tmp_path)


def test_unknown_profile_is_named():
    with pytest.raises(ValueError, match=r"profile must be one of \['paper', 'quick'\], got 'full'"):
        fig_meanfield.cells("full")
