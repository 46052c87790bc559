import io
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import restt
from restt_app.cli import app, main
from restt_paper import EXPERIMENTS
from restt_paper.experiments import Cell, Store

RESULTS = Path(__file__).parents[2] / "results"

runner = CliRunner()


def test_version_and_help():
    assert runner.invoke(app, ["--version"]).output.strip() == f"restt {restt.__version__}"
    shown = runner.invoke(app, ["--help"]).output
    for command in ("fit", "predict", "explain", "info", "demo", "bench", "data", "warm-up", "reproduce", "report"):
        assert command in shown


def test_data_list_names_every_set():
    shown = runner.invoke(app, ["data", "list"]).output
    for name in restt.data.available():
        assert name in shown


def test_data_list_keeps_the_commands_whole_in_a_narrow_terminal(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("restt.data.loading.search_folders", lambda home: (tmp_path,))
    shown = runner.invoke(app, ["data", "list"]).output.splitlines()
    for name in ("mnist", "fashion-mnist", "boston", "ale"):
        assert f"restt data fetch {name}" in shown
    assert "restt data fetch digits" not in shown


def test_reproduce_help_names_every_experiment():
    shown = runner.invoke(app, ["reproduce", "--help"]).output
    for name in (*EXPERIMENTS, "all", "quick", "paper"):
        assert name in shown


def test_reproduce_and_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = runner.invoke(app, ["reproduce", "table1", "--profile", "paper", "--device", "cpu"]).output
    assert "3919400" in shown
    assert "results in results/paper" in shown
    shown = runner.invoke(app, ["report", "--output", "page.md"]).output
    assert "3922020" in shown
    assert "| 3919400 | 3919400 | 3922020 | 3922020 |" in Path("page.md").read_text()
    assert "docs/report.html" in shown
    assert "3922020" in Path("docs/report.html").read_text()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["table1", "--profile", "full"], "profile must be one of"),
        (["table1", "--device", "gpu"], "device must be"),
        (["table1", "--device", "xpu"], "device must be"),
    ],
)
def test_mistakes_of_reproduce_are_named(words, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, OSError), match=expected):
        runner.invoke(app, ["reproduce", *words], catch_exceptions=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["reproduce", "table1", "--output", "afile"], "output must be a folder, got the file 'afile'"),
        (["report", "--results", "afile"], "results must be a folder, got the file 'afile'"),
        (["report", "--output", "."], "output must be a file, got the folder '.'"),
        (["report", "--output", "afile/z.md"], "output must be a file, got 'afile/z.md', but 'afile' is no folder"),
    ],
)
def test_paths_of_the_wrong_kind_are_named_with_their_argument(words, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("afile").touch()
    Path("afolder").mkdir()
    Store("there").compute(Cell("table1", "counts", {"profile": "quick"}), lambda cell: {})
    with pytest.raises(ValueError, match="must be") as error:
        runner.invoke(app, words, catch_exceptions=False)
    assert str(error.value) == expected


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_some_characters_still_shows_the_report(encoding, tmp_path, monkeypatch):
    shown = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr("sys.stdout", shown)
    page = tmp_path / "page.md"
    words = ["--results", str(RESULTS), "--output", str(page), "--page", str(tmp_path / "page.html")]
    monkeypatch.setattr("sys.argv", ["restt", "report", *words])
    with pytest.raises(SystemExit) as end:
        main()
    shown.flush()
    assert end.value.code == 0
    assert str(page) in shown.buffer.getvalue().decode(encoding)
    assert not page.read_text(encoding="utf-8").isascii()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["data", "fetch", "nonsense"], "name must be one of"),
        (["reproduce", "table99"], "name must be one of"),
        (["bench", "fastest"], "name must be one of"),
        pytest.param(
            ["bench", "--device", "cuda"],
            "device is 'cuda', but torch finds no CUDA device",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_mistakes_are_one_line_not_a_traceback(words, expected, monkeypatch, capfd):
    monkeypatch.setattr("sys.argv", ["restt", *words])
    with pytest.raises(SystemExit) as end:
        main()
    said = capfd.readouterr()
    assert end.value.code == 1
    assert said.out == ""
    assert_one_line(said.err, expected)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (BrokenPipeError(), 1, ""),
        (KeyboardInterrupt(), 130, "restt: stopped\n"),
        (ValueError("two\n  lines"), 1, "restt: two lines\n"),
        (MemoryError(), 1, "restt: not enough memory: try fewer rows or columns\n"),
        (MemoryError("3 GiB"), 1, "restt: not enough memory: 3 GiB\n"),
        (OSError(28, "No space left", "a.csv"), 1, "restt: No space left: a.csv; free some, or write elsewhere\n"),
        (OSError(13, "Permission denied"), 1, "restt: Permission denied\n"),
        (OSError("gone"), 1, "restt: gone\n"),
    ],
)
def test_what_ends_a_command_has_its_code_and_line(error, code, said, monkeypatch, capsys):
    def ended(*_, **__):
        raise error

    monkeypatch.setattr("restt_app.cli.app", ended)
    monkeypatch.setattr("sys.argv", ["restt", "info"])
    with pytest.raises(SystemExit) as end:
        main()
    assert (end.value.code, capsys.readouterr().err) == (code, said)


@pytest.mark.parametrize(("given", "code"), [(None, 0), (0, 0), (3, 3)])
@pytest.mark.parametrize("debug", [False, True])
def test_a_command_ends_with_its_code_and_warnings_are_notes_without_debug(given, code, debug, monkeypatch, capsys):
    words = []

    def called(received, **_):
        words.extend(received)
        for text in ("of  rows", "of rows", "of columns"):
            warnings.warn(text, UserWarning, stacklevel=1)
        return given

    monkeypatch.setattr("restt_app.cli.app", called)
    monkeypatch.setattr("sys.argv", ["restt", "info", *["--debug"] * debug, "--json"])
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with pytest.raises(SystemExit) as end:
            main()
    assert (end.value.code, words) == (code, ["info", "--json"])
    notes = ["restt: note: of rows", "restt: note: of columns"]
    assert (capsys.readouterr().err.splitlines(), len(shown)) == (([], 3) if debug else (notes, 0))


def test_what_no_user_can_have_caused_is_raised(monkeypatch):
    def ended(*_, **__):
        raise KeyError("a bug")

    monkeypatch.setattr("restt_app.cli.app", ended)
    monkeypatch.setattr("sys.argv", ["restt", "info"])
    with pytest.raises(KeyError, match="a bug"):
        main()


def test_bench_passes_on_what_was_asked(monkeypatch):
    calls = []
    monkeypatch.setattr("restt_bench.run", lambda names, **options: calls.append((names, options)))
    runner.invoke(app, ["bench"], catch_exceptions=False)
    runner.invoke(app, ["bench", "--quick", "--threads", "2", "--budget", "0.5"], catch_exceptions=False)
    runner.invoke(app, ["bench", "loops", "--rounds", "3", "--workers", "4", "--output", "o"], catch_exceptions=False)
    usual = {"quick": False, "output": None, "device": "cpu", "threads": None, "seed": 0, "rounds": None}
    usual |= {"budget": None, "workers": 1}
    command = "restt bench main --device cpu --seed 0"
    assert calls[0] == (["main"], {**usual, "command": command})
    command = "restt bench all --quick --device cpu --threads 2 --seed 0 --budget 0.5"
    assert calls[1] == (["all"], {**usual, "quick": True, "threads": 2, "budget": 0.5, "command": command})
    command = "restt bench loops --device cpu --seed 0 --rounds 3"
    assert calls[2] == (["loops"], {**usual, "rounds": 3, "workers": 4, "output": Path("o"), "command": command})


def test_warm_up_and_fetch_say_what_they_did(monkeypatch):
    monkeypatch.setattr("restt.warm_up", lambda device: {f"chain on {device}": 1.26, "loop": 0.0})
    assert runner.invoke(app, ["warm-up", "--device", "cpu"]).output == "chain on cpu: 1.3 s\nloop: 0.0 s\n"

    def fetch(name, progress):
        for path, done in (("a.gz", 1), ("b.gz", 2), ("a.gz", 4)):
            progress(path, done, 4)
        return [Path("a.gz"), Path("b.gz")] if name == "ale" else []

    monkeypatch.setattr("restt.data.fetch", fetch)
    assert runner.invoke(app, ["data", "fetch", "ale"]).output.splitlines()[-2:] == ["a.gz", "b.gz"]
    assert runner.invoke(app, ["data", "fetch", "digits"]).output.splitlines()[-1] == "digits needs no file"


@pytest.mark.parametrize(("words", "profile"), [([], "quick"), (["--profile", "paper"], "paper")])
def test_a_reproduction_is_quick_unless_asked_for(words, profile, monkeypatch):
    calls = []
    monkeypatch.setattr("restt_paper.reproduce_and_show", lambda *given: calls.append(given))
    runner.invoke(app, ["reproduce", "table1", *words], catch_exceptions=False)
    assert calls == [("table1", profile, None, "auto")]


def test_a_mistake_of_a_process_is_one_line_too():
    done = subprocess.run([sys.executable, "-m", "restt", "reproduce", "table99"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    assert_one_line(done.stderr, "name must be one of")


def assert_one_line(said: str, expected: str) -> None:
    assert said.startswith("restt: ")
    assert len(said.splitlines()) == 1
    assert expected in said
    assert "Traceback" not in said
