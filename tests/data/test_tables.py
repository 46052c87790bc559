from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from restt.data import read_csv


def write(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "houses.csv"
    path.write_text(text, encoding=encoding)
    return path


def test_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, '"a", b,price\r\n1,"2.5",3\r\n\r\n-4,5e-1,6\r\n', encoding="utf-8-sig")
    table = read_csv(path, target="price")
    assert table.name == "houses"
    assert table.feature_names == ("a", "b")
    assert table.target_name == "price"
    assert table.task == "regression"
    assert torch.equal(table.x, torch.tensor([[1, 2.5], [-4, 0.5]], dtype=torch.float64))
    assert torch.equal(table.y, torch.tensor([3, 6], dtype=torch.float64))


def test_target_by_index_ignore_delimiter_and_skip(tmp_path: Path) -> None:
    path = write(tmp_path, "made by hand;x;y\na;b;c\n1;2;3\n")
    table = read_csv(path, target=-1, ignore=["a"], delimiter=";", skip_lines=1)
    assert (table.feature_names, table.x.tolist(), table.y.tolist()) == (("b",), [[2.0]], [3.0])


def test_classes(tmp_path: Path) -> None:
    path = write(tmp_path, "x,kind\n1,10\n2,9\n3,10\n")
    table = read_csv(path, target="kind", task="classification")
    assert (table.classes, table.y.tolist(), table.y.dtype) == (("9", "10"), [1, 0, 1], torch.int64)
    assert read_csv(path, target="kind").task == "regression"
    text = read_csv(write(tmp_path, "x,kind\n1,red\n2,blue\n"), target="kind")
    assert (text.classes, text.y.tolist()) == (("blue", "red"), [1, 0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,y\n1,2\n,3\n", "column 'a' must hold numbers, got nothing on line 3"),
        ("a,y\n1,2\nred,3\n", "column 'a' must hold numbers, got 'red' on line 3"),
        ("a,y\n1,2\nnan,3\n", "column 'a' must hold finite numbers, got nan on line 3"),
        ("a,y\ninf,2\n", "got inf on line 2"),
        ("a,y\n1,\n", "the target 'y' must be given in every row, got nothing on line 2"),
        ("a,y\n1,NaN\n", "target 'y' .* got NaN on line 2"),
        ("a,y\n1,inf\n", "column 'y' must hold finite numbers, got inf on line 2"),
        ("a,y\n1,2\n1,2,3\n", "line 3 of .* must have 2 fields, got 3"),
        ("a,a,y\n1,2,3\n", r"distinct column names, got \['a'\]"),
        ("a,y\n", "at least one row"),
        ("", "at least one row"),
        ("y\n1\n", "a column besides the target 'y'"),
        ('a,y\n1,"red\n2,blue\n3,red\n', "is no CSV file from line 2 on: unexpected end of data"),
        ('a,y\n1,"red\n2,blue"\n3,red\n', "must stand on one line, got 'red.n2,blue' from line 2 .* is a quote not"),
        ('a,y\n1,"red" or\n', "is no CSV file from line 2"),
        ("a,y\n1,red\n2,-nan\n", "target 'y' .* got -nan on line 3"),
        ("a,y\n1,red\n2,+NaN\n", "target 'y' .* got .NaN on line 3"),
        ("a,y\n1_0,2\n", "column 'a' must hold numbers, got '1_0' on line 2"),
        ("a,y\n1," + "2" * 200_000 + "\n", "houses.csv is no CSV file from line 2 on: field larger"),
        ("a,b\n1,2\n", r"target must be one of the columns \['a', 'b'\], got 'y'"),
    ],
)
def test_broken_tables(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_csv(write(tmp_path, text), target="y")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": 2}, "target must be at most 1, got 2"),
        ({"target": "y", "ignore": ["z"]}, r"ignore must name columns .* got \['z'\]"),
        ({"target": "y", "task": "ranking"}, "task must be one of"),
        ({"target": "y", "skip_lines": -1}, "skip_lines must be at least 0"),
    ],
)
def test_bad_arguments(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_csv(write(tmp_path, "a,y\n1,2\n"), **options)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        read_csv(tmp_path / "none.csv", target="y")


def test_spellings_of_one_number_are_one_class(tmp_path: Path) -> None:
    path = write(tmp_path, "x,kind\n1,1.0\n2,1\n3,1e0\n4,0\n5,-0.0\n6,10\n")
    table = read_csv(path, target="kind", task="classification")
    assert (table.classes, table.y.tolist()) == (("0", "1.0", "10"), [1, 1, 1, 0, 0, 2])


def test_infinity_is_no_class_among_numbers(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="column 'kind' must hold finite numbers, got inf on line 3"):
        read_csv(write(tmp_path, "x,kind\n1,2\n2,inf\n"), target="kind", task="classification")


def test_bytes_that_are_no_text_are_told_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "latin.csv"
    path.write_bytes("a,y\n1,gr\xfcn\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.csv must be UTF-8 text, got .* 0xfc"):
        read_csv(path, target="y")


def test_damaged_tables_are_read_or_refused_by_name(tmp_path: Path) -> None:
    whole = b'name,"size, m",kind\n1,2.5,red\n3,4,"blue"\n5,6e1,red\n'
    random = np.random.default_rng(0)
    path = tmp_path / "damaged.csv"
    refusals = []
    for _ in range(600):
        content = bytearray(whole)
        for place in random.integers(len(content), size=random.integers(1, 4)):
            content[place] = random.choice(list(b'",\n\r\x00\xff1x. '))
        path.write_bytes(content[: random.integers(1, len(content) + 1)])
        try:
            table = read_csv(path, target=-1)
        except ValueError as error:
            refusals.append(str(error))
        else:
            assert len(table.x) == len(table.y) <= 3
            assert all(label and "\n" not in label for label in table.classes)
    assert 0 < len(refusals) < 600
    assert all("damaged.csv" in refusal for refusal in refusals)
