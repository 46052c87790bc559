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
    for command in ("demo", "data"):
        assert command in shown


def test_data_list_names_every_set():
    shown = runner.invoke(app, ["data", "list"]).output
    for name in restt.data.available():
        assert name in shown


@pytest.mark.parametrize(("words", "expected"), [(["data", "fetch", "nonsense"], "name must be one of")])
def test_mistakes_are_one_line_not_a_traceback(words, expected):
    done = subprocess.run([sys.executable, "-m", "restt", *words], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("restt: ")
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
