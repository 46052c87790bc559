import subprocess
import sys

import pytest
from typer.testing import CliRunner

import restt
from restt.cli import app

runner = CliRunner()


def test_version_and_help():
    assert runner.invoke(app, ["--version"]).output.strip() == f"restt {restt.__version__}"
    shown = runner.invoke(app, ["--help"]).output
    for command in ("demo", "bench", "data", "meanfield", "reproduce"):
        assert command in shown


def test_data_list_names_every_set():
    shown = runner.invoke(app, ["data", "list"]).output
    for name in restt.data.available():
        assert name in shown


def test_meanfield_tells_the_phase_and_the_remedy(tmp_path):
    picture = tmp_path / "profile.png"
    words = ["meanfield", "plain", "--sites", "100", "--bond-dim", "10", "--sigma2", "0.8", "--picture", str(picture)]
    shown = runner.invoke(app, words).output
    assert "phase: vanish; stable σ_w²: 1.0" in shown
    assert picture.read_bytes().startswith(b"\x89PNG")
    stable = runner.invoke(app, ["meanfield", "residual", "--sites", "40", "--bond-dim", "8", "--runs", "8"]).output
    assert "phase: trainable" in stable
    assert "measured" in stable


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["data", "fetch", "nonsense"], "name must be one of"),
        (["reproduce", "table99"], "name must be one of"),
        (["meanfield", "ring"], "topology must be one of"),
    ],
)
def test_mistakes_are_one_line_not_a_traceback(words, expected):
    done = subprocess.run([sys.executable, "-m", "restt", *words], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("restt: ")
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
