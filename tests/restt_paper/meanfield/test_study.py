from __future__ import annotations

import pytest

import restt_paper
from restt_paper.experiments import Store
from restt_paper.meanfield import study
from restt_paper.meanfield.trainability import MAP_SIZES, MapSizes

pytest.importorskip("matplotlib")

TINY = study.Sizes(
    sites=12,
    bond_dim=6,
    runs=24,
    batch=2,
    widths=(4, 8),
    width_runs=20,
    plain_sites=20,
    residual_sites=20,
    gradient_bond_dim=4,
    gradient_runs=3,
)
TINY_MAP = MapSizes("digits", 200, (2,), 6, 12, lr=1e-2, sigma2=(1e-3, 1.0))


def test_pictures_and_numbers(tmp_path, monkeypatch):
    monkeypatch.setitem(study.SIZES, "quick", TINY)
    monkeypatch.setitem(MAP_SIZES, "quick", TINY_MAP)
    restt_paper.reproduce("fig-meanfield", "quick", tmp_path)
    (cell,) = study.cells("quick")
    saved = Store(tmp_path).load(cell)["result"]
    drawn = restt_paper.pictures_of("fig-meanfield", "quick", tmp_path)
    assert [path.name for path in drawn] == [f"fig-meanfield-{name}.png" for name in study.DRAWN]
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
    agrees = restt_paper.tables_of("fig-meanfield", "quick", tmp_path)[0]
    assert {row[-1] for row in agrees.rows} == {"yes"}


def test_nothing_is_measured_where_nothing_can_be_drawn(tmp_path, monkeypatch):
    def missing():
        raise ImportError("drawing needs matplotlib")

    monkeypatch.setattr(study, "require_matplotlib", missing)
    monkeypatch.setattr(study, "predict", lambda *_: pytest.fail("measured first"))
    with pytest.raises(ImportError, match="needs matplotlib"):
        restt_paper.reproduce("fig-meanfield", "quick", tmp_path)


def test_unknown_profile_is_named():
    with pytest.raises(ValueError, match=r"profile must be one of \['paper', 'quick'\], got 'full'"):
        study.cells("full")
