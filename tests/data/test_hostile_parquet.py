"""Damaged and crafted Parquet files are refused by name, streamed or read."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from restt.data import stream
from restt_app.workflow import read_table

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

READERS = {"streamed": lambda path: list(stream(path, "y").frames()), "read": read_table}


def written(path, **options):
    """A file whose last column, y, has one page behind its header."""
    y = np.arange(1000) % 100
    pq.write_table(pa.table({"x": y * 0.5, "y": y}), path, **{"write_statistics": False, **options})
    return path


def varint(value: int) -> bytes:
    value, out = value << 1, b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def unvarint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (content[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if content[at - 1] < 128:
            return value >> 1, at


def craft(path, **claims):
    """Rewrites the first page header of the last column: type, uncompressed, compressed, and the number of values.

    Longer numbers push the page's bytes back; it gives up as many, so that the footer stays right.
    """
    content = path.read_bytes()
    chunk = pq.read_metadata(path).row_group(0).column(1)
    start = at = chunk.dictionary_page_offset or chunk.data_page_offset
    found = {}
    for name in ("type", "uncompressed", "compressed", "values"):
        at += content[at] != 0x15  # the head of the structure that counts the values
        found[name], at = unvarint(content, at + 1)
    struct = b"\x4c" if found["type"] == 2 else b"\x2c"
    wanted = {**found, **claims}
    for given_up in range(20):
        if "compressed" not in claims:
            wanted["compressed"] = found["compressed"] - given_up
        numbers = [b"\x15" + varint(wanted[name]) for name in ("type", "uncompressed", "compressed", "values")]
        head = b"".join([*numbers[:3], struct, numbers[3]])
        if len(head) - (at - start) == given_up:
            break
    end = chunk.total_compressed_size + start
    path.write_bytes(content[:start] + head + content[at : end - given_up] + content[end:])
    return path


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("options", "claims"),
    [
        ({"use_dictionary": False}, {"uncompressed": 2**31 - 1}),
        ({}, {"uncompressed": 2**26}),
        ({}, {"values": 2**31 - 1}),
        ({"use_dictionary": False}, {"compressed": 2**20}),
        ({"use_dictionary": False}, {"values": 10}),
    ],
)
def test_a_page_that_claims_too_much_is_refused(tmp_path, reader, options, claims):
    path = craft(written(tmp_path / "a.parquet", **options), **claims)
    with pytest.raises(ValueError, match=r"a\.parquet is damaged"):
        READERS[reader](path)


def test_a_list_in_the_footer_is_no_longer_than_the_footer(tmp_path):
    """A million columns claimed in a file of 700 bytes: pyarrow alone takes some 700 MB for them."""
    path = written(tmp_path / "a.parquet", store_schema=False)
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - length : -8]
    # Row groups (one structure in a list), whose first field is the list of the two columns.
    assert footer.count(b"\x19\x1c\x19\x2c") == 1
    claimed = footer.replace(b"\x19\x1c\x19\x2c", b"\x19\x1c\x19\xfc" + bytes([0xC0, 0x84, 0x3D]))
    path.write_bytes(content[: -8 - length] + claimed + len(claimed).to_bytes(4, "little") + b"PAR1")
    for read in READERS.values():
        with pytest.raises(ValueError, match=r"a\.parquet .*damaged.*Exceeded size limit"):
            read(path)


def test_damaged_statistics_of_a_column_do_not_end_the_process():
    """pyarrow's ``RowGroupMetaData.column`` would: it lets an exception of C++ pass through Python.

    An older one reads no histograms, and finds that the pages end too early.
    """
    path = Path(__file__).parent / "damaged_statistics.parquet"
    for read in (lambda path: list(stream(path, "x").frames()), read_table):
        with pytest.raises(ValueError, match=r"damaged_statistics\.parquet is damaged.*: .*(histogram|end of stream)"):
            read(path)


def test_damaged_statistics_do_not_end_the_process_that_asks_for_a_streams_config():
    """In a process of its own: what ended it would end the tests too."""
    path = Path(__file__).parent / "damaged_statistics.parquet"
    program = f"from restt.data import stream; print(stream({str(path)!r}, 'x').to_config()['files'])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("['damaged_statistics.parquet ")
