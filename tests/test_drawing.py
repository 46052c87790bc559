import pytest

from restt import Topology
from restt.drawing import _columns, _terms


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_draw_saves_a_picture(tmp_path, ending):
    path = tmp_path / f"topology.{ending}"
    Topology.residual(3).skip_to_output(2).draw(path)
    head = path.read_bytes()[:100]
    assert {"png": b"PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending] in head


def test_long_chain_shows_its_ends_and_its_edits():
    assert _columns(Topology.residual(196).without_chain(50)) == [1, 2, None, 49, 50, 51, None, 195, 196]
    assert _columns(Topology.plain(3)) == [1, 2, 3]
    assert _columns(Topology.plain(1)) == [1]


def test_unrolled_form_has_exactly_the_terms(tmp_path):
    assert _terms(Topology.volterra(3)) == [(3,), (2, 3), (1, 2, 3)]
    Topology.plain(1).draw(tmp_path / "one.svg")
    assert (tmp_path / "one.svg").stat().st_size > 1000


def test_bad_paths(tmp_path):
    with pytest.raises(ValueError, match=r"path must end in .*\.png.*topology\.xyz"):
        Topology.residual(3).draw(tmp_path / "topology.xyz")
    with pytest.raises(FileNotFoundError, match="absent"):
        Topology.residual(3).draw(tmp_path / "absent" / "topology.png")
