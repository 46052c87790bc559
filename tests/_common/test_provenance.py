import json
import platform
import re
import shutil
import subprocess

import pytest
import torch

import restt
from restt._common import provenance as module
from restt._common.provenance import provenance


def test_everything_a_results_file_needs():
    found = provenance("cpu", seed=3, command="restt bench")
    assert found["seed"] == 3
    assert found["command"] == "restt bench"
    assert found["threads"] == torch.get_num_threads()
    assert "core" in found["device"]
    assert found["versions"]["restt"] == restt.__version__
    assert {"python", "torch", "numpy", "scikit-learn"} <= set(found["versions"])
    json.dumps(found)


def test_no_path_and_no_host_name():
    text = json.dumps(provenance())
    assert platform.node() not in text or not platform.node()
    assert not re.search(r'"/|\s/\w|\\\\', text)


@pytest.fixture(autouse=True)
def told_nothing(monkeypatch):
    monkeypatch.delenv("RESTT_COMMIT", raising=False)


def checkout(tmp_path, monkeypatch):
    package = tmp_path / "src" / "restt" / "_common"
    package.mkdir(parents=True)
    (package / "provenance.py").write_text("")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "old.json").write_text("1")

    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", tmp_path, *identity, *arguments], check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    monkeypatch.setattr(module, "__file__", str(package / "provenance.py"))
    return package, git


def in_a_new_process():
    module._checkout.cache_clear()
    return provenance()


def test_commit_and_dirty_flag_of_a_checkout(tmp_path, monkeypatch):
    package, _ = checkout(tmp_path, monkeypatch)
    found = provenance()
    assert re.fullmatch("[0-9a-f]{40}", found["commit"])
    assert found["dirty"] is False
    (tmp_path / "results" / "old.json").write_text("2")
    assert in_a_new_process()["dirty"] is False
    (package / "provenance.py").write_text("changed")
    assert in_a_new_process()["dirty"] is True


def test_a_new_source_file_makes_a_tree_dirty(tmp_path, monkeypatch):
    package, _ = checkout(tmp_path, monkeypatch)
    (tmp_path / "notes.txt").write_text("nobody runs this")
    assert in_a_new_process()["dirty"] is False
    (package / "new.py").write_text("1")
    assert in_a_new_process()["dirty"] is True


def test_a_commit_made_meanwhile_is_not_the_code_that_runs(tmp_path, monkeypatch):
    package, git = checkout(tmp_path, monkeypatch)
    began_with = provenance()["commit"]
    (package / "provenance.py").write_text("changed")
    git("commit", "-am", "second")
    assert provenance()["commit"] == began_with
    assert in_a_new_process()["commit"] != began_with


def test_an_installed_package_does_not_borrow_the_commit_around_it(tmp_path, monkeypatch):
    checkout(tmp_path, monkeypatch)
    installed = tmp_path / ".venv" / "restt" / "_common"
    installed.mkdir(parents=True)
    monkeypatch.setattr(module, "__file__", str(installed / "provenance.py"))
    found = provenance()
    assert (found["commit"], found["dirty"]) == (f"restt {restt.__version__}", None)


def test_a_copy_is_told_its_commit_whatever_its_own_git_says(tmp_path, monkeypatch):
    checkout(tmp_path, monkeypatch)
    monkeypatch.setenv("RESTT_COMMIT", "f" * 40)
    assert (provenance()["commit"], provenance()["dirty"]) == ("f" * 40, None)
    shutil.rmtree(tmp_path / ".git")
    assert provenance()["commit"] == "f" * 40


def test_the_name_of_the_kernel_build_stays_on_the_machine(monkeypatch):
    monkeypatch.setattr("platform.release", lambda: "6.18.44-fc-v445-gpu")
    found = provenance()["platform"]
    assert "6.18.44 " in found
    assert "fc" not in found.split()[1]
