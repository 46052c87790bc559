from __future__ import annotations

import warnings
from functools import partial

import pytest

from restt._common.errors import check_file, check_folder, check_new_file, square_side, warn_caller


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a file and a folder inside, and the one we are in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "afile").touch()
    (tmp_path / "afolder").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("check", "paths"),
    [
        (check_folder, ["afolder", "new", "afolder/new/deep", ".", "../new"]),
        (check_new_file, ["afile", "new.md", "afolder/new/deep.md"]),
        (check_file, ["afile"]),
    ],
)
def test_paths_that_can_be_used_come_back_and_nothing_is_made(here, check, paths):
    for path in paths:
        assert str(check("output", path)) == path
        assert check("output", here / path) == here / path
    assert sorted(path.name for path in here.rglob("*")) == ["afile", "afolder"]


@pytest.mark.parametrize(
    ("check", "path", "message"),
    [
        (check_folder, "afile", "output must be a folder, got the file 'afile'"),
        (check_folder, "afile/a/b", "output must be a folder, got 'afile/a/b', but 'afile' is no folder"),
        (check_new_file, "afolder", "output must be a file, got the folder 'afolder'"),
        (check_new_file, "afile/a.md", "output must be a file, got 'afile/a.md', but 'afile' is no folder"),
        (check_file, "afolder", "output must be a file, got the folder 'afolder'"),
        (check_file, "new", "output must be a file, got 'new', which is not there"),
        (check_file, "afile/a", "output must be a file, got 'afile/a', but 'afile' is no folder"),
    ],
)
def test_paths_that_cannot_be_used_are_named_with_their_argument(here, check, path, message):
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        check("output", path)
    assert str(error.value) == message


@pytest.mark.parametrize("side", [1, 2, 28, 10**9])
def test_the_side_of_a_square(side):
    assert square_side("pixels", side**2) == side


@pytest.mark.parametrize("places", [-4, 0, 2, 783, 785])
def test_other_numbers_are_no_squares(places):
    with pytest.raises(ValueError, match=rf"pixels must form a square \(such as 784 for 28×28\), got {places}$"):
        square_side("pixels", places)


def calling(name, called):
    """A function of a module of this name that calls another one."""
    module = {"__name__": name, "called": called}
    exec(compile("def call():\n    called()\n", f"{name}.py", "exec"), module)
    return module["call"]


@pytest.mark.parametrize("user", ["__main__", "torch_user.fits", "restt_app.cli", "sklearnex"])
def test_a_warning_names_the_user_and_not_the_packages_between(user):
    call = partial(warn_caller, "odd")
    for name in ("restt.prior.rows", "restt.estimators", "sklearn.pipeline", "joblib", "torch.utils", user):
        call = calling(name, call)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    assert [one.filename for one in seen] == [f"{user}.py"]


def test_code_of_no_module_gets_neither_a_warning_nor_an_error():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        calling(None, partial(warn_caller, "odd"))()
    assert seen == []  # Python drops what it cannot name
