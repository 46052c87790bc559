import bz2
import gzip
import io
import lzma
import os
import threading

import pytest

from restt_app.workflow.source import Source, strip_texts

ROWS = "größe;name\n1,5;Jürgen\n2;–\n"


def read(path, **options):
    with Source(path, **options) as source:
        return source, source.read()


@pytest.mark.parametrize(
    ("encoding", "found"),
    [
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8-sig"),
        ("utf-16", "utf-16"),
        ("cp1252", "cp1252"),
    ],
)
def test_encodings_are_found(encoding, found, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(ROWS.encode(encoding))
    source, chunk = read(path)
    assert source.encoding == found
    assert chunk.columns.tolist() == ["größe", "name"]
    assert chunk["name"].tolist() == ["Jürgen", "–"]
    assert bool(source.notes) == (found == "cp1252")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", " "])
def test_delimiters_are_found(delimiter, tmp_path):
    path = tmp_path / "a.csv"
    rows = [["first", "second", "third"], ["1.5", "x", "2"], ["2.5", '"y, z"', ""]]
    path.write_text("\n".join(delimiter.join(row) for row in rows))
    source, chunk = read(path)
    assert source.delimiter == delimiter
    assert chunk["second"].tolist() == ["x", "y, z"]
    assert chunk["third"].isna().tolist() == [False, True]


def test_commas_of_decimals_are_no_delimiter(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a;b\n1,5;2,5\n3,5;4,5\n")
    assert read(path)[0].delimiter == ";"


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_files_are_read_whatever_they_are_called(compress, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(compress(b"a,b\n1,x\n"))
    assert read(path)[1]["b"].tolist() == ["x"]


def test_a_damaged_archive_is_named(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + bytes(range(49, 58)) * 9)[:-12])
    with pytest.raises(ValueError, match=r"a\.csv\.gz is damaged"):
        Source(path)


def test_standard_input_and_pipes_are_read_more_than_once(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a,b\n1,x\n")))
    with Source("-") as source:
        assert source.label == "standard input"
        assert [len(chunk) for _ in range(2) for chunk in source.chunks()] == [1, 1]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"a,b\n1,x\n",))
    writer.start()
    with Source(pipe) as source:
        assert [len(chunk) for _ in range(2) for chunk in source.chunks()] == [1, 1]
    writer.join()


def test_rows_come_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr("restt_app.workflow.source.CHUNK_ROWS", 2)
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "1,2\n" * 5)
    with Source(path) as source:
        assert [len(chunk) for chunk in source.chunks()] == [2, 2, 1]
        assert (len(source.read(5)), source.notes) == (5, [])
        assert (len(source.read(3)), source.notes) == (3, ["only the first 3 rows were read"])


def test_missing_values_have_many_words(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(
        "a,b\n" + "".join(f"{word},x\n" for word in ("", "NA", "NaN", "null", "?", "None", "N/A", "gone", "0"))
    )
    _, chunk = read(path, missing=["gone"])
    assert chunk["a"].isna().tolist() == [True] * 8 + [False]


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        (b"", {}, "is empty: expected a line of column names"),
        (b"\n\n", {}, "is empty"),
        (b"1,2\n3,4\n", {}, "begins with numbers"),
        (b"a,b,a\n1,2,3\n", {}, "has 2 columns named 'a'"),
        (b"a,b\n1,2,3\n", {}, "is no table of 2 column"),
        (b"a,b\n1,2\n1,2,3\n", {}, "Expected 2 fields in line 3, saw 3"),
        (b"a\0b\0\0\0\1,\n", {}, "neither text nor Parquet"),
        (b"PK\3\4\0\0", {}, "a.csv is an Excel workbook or a zip archive: expected delimited text or Parquet"),
        (b'[{"a":1,"b":6},{"a":2,"b":6}]', {}, "is JSON: expected"),
        (b'{"a": 1}\n{"a": 2}\n', {}, "is JSON: expected"),
        (b"\n<!DOCTYPE html><html>", {}, "is HTML or XML: expected"),
        (b"a,b\n\xe4,1\n", {"encoding": "utf-8"}, "cannot be read as utf-8: .* byte 0xe4 in position 4"),
        (b"a,b\n\x81\xe4,1\n", {}, "cannot be read as cp1252: .* name another"),
        (b"a,b\n1,2\n", {"encoding": "utf-16"}, "cannot be read as utf-16"),
        (b"a,b\n1,2\n", {"encoding": "esperanto"}, "encoding must be"),
        (b"a,b\n1,2\n", {"delimiter": "::"}, "delimiter must be"),
        (b"PAR1....", {}, r"a\.csv is damaged"),
    ],
)
def test_what_is_no_table_is_named(content, options, expected, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=expected):
        read(path, **options)


def test_a_column_without_a_name_gets_one(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(",b\n0,x\n")
    assert read(path)[0].columns == ["column 1", "b"]


def test_texts_are_stripped_and_other_columns_keep_their_type():
    pa, pd = (pytest.importorskip(name) for name in ("pyarrow", "pandas"))
    plain = pd.DataFrame({"text": [" u ", "NA"], "number": [1, 2], "mixed": [" u ", 1.5]})
    for text in ("object", "string", pd.ArrowDtype(pa.string())):
        frame = plain.astype({"text": text, "number": "int64[pyarrow]"})
        found = strip_texts(frame, frozenset({"NA"}))
        assert found.text.isna().tolist() == [False, True]
        assert (found.text.iloc[0], found.mixed.tolist()) == ("u", [" u ", 1.5])
        assert found.number.dtype == "int64[pyarrow]"
        assert found.text.dtype == ("string" if text == "string" else object)


def test_damaged_notes_of_pandas_in_a_parquet_file_are_not_looked_at(tmp_path):
    pa, pq, pd = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet", "pandas"))
    table = pa.Table.from_pandas(pd.DataFrame({"a": [1.0, 2.0]}))
    notes = table.schema.metadata[b"pandas"].replace(b'"name"', b'"nbme"')
    pq.write_table(table.replace_schema_metadata({b"pandas": notes}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet")[1]["a"].tolist() == [1.0, 2.0]


def test_a_damaged_page_of_a_parquet_file_is_named(tmp_path):
    pa, pq = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [k * 0.1 for k in range(500)]}), path, use_dictionary=False, compression="GZIP")
    chunk = pq.read_metadata(path).row_group(0).column(0)
    content = bytearray(path.read_bytes())
    middle = chunk.data_page_offset + chunk.total_compressed_size // 2
    content[middle : middle + 40] = bytes(40)
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"a\.parquet is damaged: "):
        read(path)


@pytest.mark.parametrize(
    ("content", "delimiter"),
    [
        ("a,b\n1,2\n3,4\n", ","),
        ("a b,c d\n1 x,2\n3,4 y\n", ","),  # blanks cut the header into three, the rows into two
        ("a;b;c\n1,5;2,5;x\n3,5;4;y\n", ";"),
        ("a|b\n1,2|3\n4,5|6\n", "|"),
        ("alone\n1\n2\n", ","),
        ("a,b;c\n1,2;3\n4,5;6\n", ","),  # as many of each: the first of the list
        ("a,b,c;d\n1,2,3;4\n", ","),  # the more fields
    ],
)
def test_the_delimiter_cuts_all_records_alike_and_into_the_most(content, delimiter, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(content)
    with Source(path) as source:
        assert source.delimiter == delimiter


def test_a_record_cut_by_the_end_of_the_sample_does_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr("restt_app.workflow.source._SAMPLE_CHARACTERS", 18)
    path = tmp_path / "a.csv"
    path.write_text("a;b,c\n1;2,3\n4;5555555,6\n")  # the last of the sample is "4;5555", of one comma less
    with Source(path) as source:
        assert source.delimiter == ","
