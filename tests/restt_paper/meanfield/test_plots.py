from __future__ import annotations

import builtins

import pytest
import torch

import restt
from restt import Topology, meanfield
from restt_paper.meanfield import plots
from restt_paper.meanfield.comparison import compare
from restt_paper.meanfield.trainability import phase_diagram

pytest.importorskip("matplotlib")


def shape_of(path):
    from matplotlib import image

    return image.imread(path).shape


@pytest.fixture
def comparison():
    module = restt.ResTT(8, 2, 4, 2, Topology.residual(8).without_chain(4).without_skip(4).without_linear(4), runs=5)
    return compare(module, restt.features.Trigonometric()(torch.rand(2, 8)))


def test_profiles_and_steps_with_a_dead_site(comparison, tmp_path):
    theory = meanfield.predict(Topology.residual(8).without_chain(4).without_skip(4).without_linear(4), 1.0, "auto", 4)
    plots.plot_profiles({name: {"x": (theory, comparison.profile)} for name in "ab"}, tmp_path / "p.png")
    plots.plot_steps({"a": {"x": comparison}}, tmp_path / "s.png")
    assert shape_of(tmp_path / "p.png")[1] > 1.8 * shape_of(tmp_path / "s.png")[1]


def test_phases_with_and_without_trainings(tmp_path):
    diagrams = [phase_diagram(name, [0.01, 0.1, 1.0, 3.0], [3, 30, 300]) for name in ("plain", "residual")]
    plots.plot_phases(diagrams, tmp_path / "phases.svg")
    points = (torch.tensor([0.1, 1.0]), torch.tensor([30, 300]), torch.tensor([0.0, 1.0]))
    plots.plot_phases(diagrams, tmp_path / "map.svg", [points, points])
    text = (tmp_path / "phases.svg").read_text()
    assert "<svg" in text
    assert (tmp_path / "map.svg").stat().st_size > 1000


def test_a_missing_matplotlib_names_the_extra(monkeypatch, comparison, tmp_path):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"pip install 'restt\[plot\]'"):
        plots.plot_steps({"a": {"x": comparison}}, tmp_path / "s.png")
