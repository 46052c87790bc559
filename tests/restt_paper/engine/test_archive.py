from __future__ import annotations

import gzip
import io
import json
import tarfile
import tracemalloc

import pytest

import restt_paper
from restt._common.lock import claimed
from restt_paper.engine import archive as archives
from restt_paper.engine.archive import pack, unpack, unpack_profile
from restt_paper.engine.cell import Cell
from restt_paper.engine.store import LOCKS, Store

PNG = b"\x89PNG\r\n\x1a\n"
DRAWN = ["fig-meanfield-profiles.png", "fig-meanfield-steps.png"]
CELLS = [Cell("table4", f"mnist-r{r}", {"r": r}) for r in (20, 50)]


@pytest.fixture
def packed(tmp_path):
    store = Store(tmp_path / "there")
    for cell in CELLS:
        store.compute(cell, lambda cell: {"accuracy": cell.settings["r"] / 3})
    (tmp_path / "there" / "meanfield-quick.json").write_text("{}")
    (tmp_path / "there" / "pictures").mkdir()
    (tmp_path / "there" / "pictures" / "table4.png").write_bytes(b"png")
    assert pack(tmp_path / "results.tar.gz", store.folder, "paper") == [cell.key for cell in CELLS]
    return tmp_path / "results.tar.gz"


@pytest.fixture
def study(tmp_path):
    """A mean-field study with its pictures, packed, and its cell."""
    cell = Cell("fig-meanfield", "study", {"profile": "quick", "pictures": DRAWN})
    store = Store(tmp_path / "studied")
    store.compute(cell, lambda _: {"runs": 5})
    (store.folder / "pictures").mkdir()
    for file in (*DRAWN, "fig-training.png", "fig-meanfield-other.png"):
        (store.folder / "pictures" / file).write_bytes(PNG + file.encode())
    packed = pack(tmp_path / "study.tar.gz", store.folder)
    assert packed == [cell.key, *(f"pictures/{file.removesuffix('.png')}" for file in DRAWN)]
    return cell


def archive(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def test_what_was_packed_comes_back_byte_for_byte(tmp_path, packed):
    assert unpack_profile(packed) == "paper"
    found = unpack(packed, tmp_path / "here")
    assert found.written == tuple(cell.key for cell in CELLS)
    for cell in CELLS:
        assert Store(tmp_path / "here").path(cell).read_bytes() == Store(tmp_path / "there").path(cell).read_bytes()
    again = unpack(packed, tmp_path / "here")
    assert again.same == found.written
    assert again.written == ()
    assert not [path for path in (tmp_path / "here" / LOCKS).rglob("*") if path.is_file()]


def test_same_results_pack_to_the_same_bytes(tmp_path, packed):
    pack(tmp_path / "again.tar.gz", tmp_path / "there", "paper")
    assert (tmp_path / "again.tar.gz").read_bytes() == packed.read_bytes()


def test_a_finished_cell_that_differs_is_kept_and_reported(tmp_path, packed):
    here = Store(tmp_path / "here")
    here.compute(CELLS[0], lambda cell: {"accuracy": -1})
    before = here.path(CELLS[0]).read_bytes()
    found = unpack(packed, here.folder)
    assert found.different == (CELLS[0].key,)
    assert found.written == (CELLS[1].key,)
    assert here.path(CELLS[0]).read_bytes() == before


def test_a_cell_being_computed_is_left_to_its_process(tmp_path, packed):
    here = Store(tmp_path / "here")
    with claimed(here.folder / LOCKS / f"{CELLS[1].key}.lock", wait=False):
        found = unpack(packed, here.folder)
    assert found.busy == (CELLS[1].key,)
    assert here.load(CELLS[1]) is None


@pytest.mark.parametrize(
    "name",
    [
        "../table4/{}.json",
        "/etc/table4/{}.json",
        "paper/../{}.json",
        "paper/table4/../../{}.json",
        "paper/table4/{}.py",
        "paper/table5/{}.json",
        "paper/.hidden/{}.json",
        "paper/pictures/fig-meanfield-other.png",
        "paper/pictures/../fig-meanfield-steps.png",
        "paper/table4/fig-meanfield-steps.png",
        "pictures/fig-meanfield-steps.png",
        "table4/{}.json",
    ],
)
def test_names_that_lead_elsewhere_are_refused_and_nothing_is_written(tmp_path, packed, name):
    good, bad = CELLS
    there = Store(tmp_path / "there")
    members = {f"paper/{good.key}.json": there.path(good).read_bytes()}
    members[name.format(bad.key.split("/")[1])] = there.path(bad).read_bytes()
    path = archive(tmp_path / "bad.tar.gz", members)
    with pytest.raises(ValueError, match=r"bad\.tar\.gz holds"):
        unpack(path, tmp_path / "deep" / "here")
    assert not list((tmp_path / "deep").rglob("*.json"))


def test_links_are_refused(tmp_path):
    path = tmp_path / "bad.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo(f"paper/{CELLS[0].key}.json")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(ValueError, match="which is no results file"):
        unpack(path, tmp_path / "here")


def test_changed_settings_and_broken_files_are_refused(tmp_path, packed):
    cell = CELLS[0]
    content = json.loads(Store(tmp_path / "there").path(cell).read_text())
    content["settings"]["r"] = 21
    path = archive(tmp_path / "bad.tar.gz", {f"paper/{cell.key}.json": json.dumps(content).encode()})
    with pytest.raises(ValueError, match="belongs to another cell"):
        unpack(path, tmp_path / "here")
    path = archive(tmp_path / "bad.tar.gz", {f"paper/{cell.key}.json": b'{"cell": "tab'})
    with pytest.raises(ValueError, match="not a whole results file"):
        unpack(path, tmp_path / "here")
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(packed.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"cut.tar.gz is not a whole archive of results"):
        unpack(cut, tmp_path / "here")
    no_archive = tmp_path / "text.tar.gz"
    no_archive.write_text("hello")
    with pytest.raises(ValueError, match="is not a whole archive of results"):
        unpack(no_archive, tmp_path / "here")


def test_packing_refuses_nothing_and_damaged_results(tmp_path, packed):
    with pytest.raises(FileNotFoundError, match="holds no results to pack"):
        pack(tmp_path / "none.tar.gz", tmp_path / "empty", "paper")
    Store(tmp_path / "there").path(CELLS[0]).write_text("{")
    with pytest.raises(ValueError, match="is not a whole results file"):
        pack(tmp_path / "none.tar.gz", tmp_path / "there", "paper")
    assert not (tmp_path / "none.tar.gz").exists()


def test_a_pack_with_a_flipped_bit_is_refused(tmp_path, packed):
    content = packed.read_bytes()
    for place in range(20, len(content), 7):
        damaged = bytearray(content)
        damaged[place] ^= 1
        packed.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"results\.tar\.gz"):
            unpack(packed, tmp_path / "here")
    assert not (tmp_path / "here").exists()


def test_the_profile_is_that_of_the_results(tmp_path):
    store = Store(tmp_path / "there")
    store.compute(Cell("table1", "counts", {"profile": "paper"}), lambda _: {"count": 1})
    pack(tmp_path / "results.tar.gz", store.folder)
    assert unpack_profile(tmp_path / "results.tar.gz") == "paper"
    with pytest.raises(ValueError, match=r"profile must be that of the results in .*, \['paper'\], got 'quick'"):
        pack(tmp_path / "other.tar.gz", store.folder, "quick")
    store.compute(Cell("table1", "counts", {"profile": "quick"}), lambda _: {"count": 1})
    with pytest.raises(ValueError, match=r"must name one profile, got \['paper', 'quick'\]"):
        pack(tmp_path / "other.tar.gz", store.folder)
    assert not (tmp_path / "other.tar.gz").exists()


def test_pictures_that_no_result_gives_again_come_along(tmp_path, study):
    unpack(tmp_path / "study.tar.gz", tmp_path / "here")
    drawn = restt_paper.pictures_of("fig-meanfield", "quick", tmp_path / "here")
    assert [path.name for path in drawn] == DRAWN
    assert all(path.read_bytes() == PNG + path.name.encode() for path in drawn)
    assert len(unpack(tmp_path / "study.tar.gz", tmp_path / "here").same) == 1 + len(DRAWN)


def test_a_picture_that_is_here_is_kept(tmp_path, study):
    own = tmp_path / "here" / "pictures" / "fig-meanfield-steps.png"
    own.parent.mkdir(parents=True)
    own.write_bytes(PNG + b"own")
    found = unpack(tmp_path / "study.tar.gz", tmp_path / "here")
    assert found.different == ("pictures/fig-meanfield-steps",)
    assert own.read_bytes() == PNG + b"own"


@pytest.mark.parametrize("fate", ["different", "busy"])
def test_pictures_of_another_study_than_the_one_here_are_left_out(tmp_path, study, fate):
    here = Store(tmp_path / "here")
    if fate == "different":
        here.compute(study, lambda _: {"runs": 6})
        found = unpack(tmp_path / "study.tar.gz", here.folder)
    else:
        with claimed(here.folder / LOCKS / f"{study.key}.lock", wait=False):
            found = unpack(tmp_path / "study.tar.gz", here.folder)
    assert found.written == ()
    assert len(getattr(found, fate)) == 1 + len(DRAWN)
    assert not (here.folder / "pictures").exists()


def test_what_only_has_the_name_of_a_picture_is_refused_on_both_ways(tmp_path, study):
    path = archive(tmp_path / "bad.tar.gz", {f"quick/pictures/{'fig-meanfield-steps.png'}": b"<html>"})
    with pytest.raises(ValueError, match=r"bad\.tar\.gz holds .*steps\.png', which is no picture"):
        unpack(path, tmp_path / "here")
    (tmp_path / "studied" / "pictures" / "fig-meanfield-steps.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"studied holds .*steps\.png', which is no picture"):
        pack(tmp_path / "none.tar.gz", tmp_path / "studied")


@pytest.mark.parametrize("name", ["mnist-r21", "fashion-r20"])
def test_a_renamed_cell_is_told_when_it_is_packed(tmp_path, packed, name):
    path = Store(tmp_path / "there").path(CELLS[0])
    path.rename(path.with_name(path.name.replace("mnist-r20", name)))
    with pytest.raises(ValueError, match=rf"there holds 'table4/{name}-.*belongs to another cell"):
        pack(tmp_path / "none.tar.gz", tmp_path / "there", "paper")
    assert not (tmp_path / "none.tar.gz").exists()


def test_a_file_that_inflates_without_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "LARGEST_BYTES", 2**20)
    bomb = tmp_path / "bomb.tar.gz"
    bomb.write_bytes(gzip.compress(bytes(2**25)))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"bomb\.tar\.gz holds more than 1048576 bytes"):
            unpack(bomb, tmp_path / "here")
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


def test_a_member_larger_than_what_is_in_the_file_is_refused(tmp_path):
    path = tmp_path / "sparse.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo(f"paper/{CELLS[0].key}.json")
        info.pax_headers = {"GNU.sparse.map": "0,2", "GNU.sparse.size": str(2**20)}
        info.size = 2
        tar.addfile(info, io.BytesIO(b"{}"))
    with pytest.raises(ValueError, match="which is no results file"):
        unpack(path, tmp_path / "here")


def test_results_too_large_to_unpack_are_not_packed(tmp_path, packed, monkeypatch):
    monkeypatch.setattr(archives, "LARGEST_BYTES", 2**10)
    with pytest.raises(ValueError, match=r"there must be at most 1024 bytes to be packed, got \d+"):
        pack(tmp_path / "none.tar.gz", tmp_path / "there", "paper")


@pytest.mark.parametrize("cut", ["a header that is damaged", "a file that ends early", "nothing in it"])
def test_a_pack_that_lost_members_is_refused_not_half_unpacked(tmp_path, packed, cut):
    inflated = bytearray(gzip.decompress(packed.read_bytes()))
    with tarfile.open(fileobj=io.BytesIO(bytes(inflated))) as tar:
        second = tar.getmembers()[1].offset
    if cut == "a header that is damaged":
        inflated[second + 150] ^= 1
    packed.write_bytes(gzip.compress(bytes(inflated[: {"a file that ends early": second + 100}.get(cut)])))
    if cut == "nothing in it":
        archive(packed, {})
    with pytest.raises(ValueError, match="not a whole archive of results"):
        unpack(packed, tmp_path / "here")
    assert not (tmp_path / "here").exists()


def test_a_result_under_another_profiles_name_is_refused(tmp_path):
    store = Store(tmp_path / "there")
    cell = Cell("table4", "mnist", {"profile": "quick"})
    store.compute(cell, lambda _: {})
    forged = archive(tmp_path / "forged.tar.gz", {f"paper/{cell.key}.json": store.path(cell).read_bytes()})
    with pytest.raises(ValueError, match="a result of the quick profile"):
        unpack(forged, tmp_path / "here")
