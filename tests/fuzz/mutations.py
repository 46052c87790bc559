"""Damaged copies of a file: what a bad disk, a cut transfer, a wrong program or somebody's malice could leave."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

# What a value of a plain file may become: other types, sizes that nothing has, numbers at the edges.
STRANGE: tuple[Any, ...] = (
    None, True, -1, 0, 20_000, 10**8, 2**31, 2**63, 2**200, -0.5, 1e308, "", "\x00", "../../x", "é" * 50, [], {}, [[]],
    [0] * 9, {"": None}, [1, "a", None],
)  # fmt: skip


def damaged_bytes(content: bytes, rng: random.Random) -> bytes:
    """One to three small accidents."""
    found = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        rng.choice(ACCIDENTS)(found, rng)
    return bytes(found)


def _flip(found: bytearray, rng: random.Random) -> None:
    if found:
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)


def _overwrite(found: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(found) + 1)
    found[start : start + rng.randint(1, 16)] = rng.randbytes(rng.randint(1, 16))


def _cut(found: bytearray, rng: random.Random) -> None:
    del found[rng.randrange(len(found) + 1) :]


def _drop(found: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(found) + 1)
    del found[start : start + rng.randint(1, 64)]


def _repeat(found: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(found) + 1)
    part = found[start : start + rng.randint(1, 256)]
    found[start:start] = part * rng.randint(1, 4)


def _edge(found: bytearray, rng: random.Random) -> None:
    """Sizes and offsets stand in the first bytes; there the edges hurt most."""
    width = rng.choice((1, 2, 4, 8))
    start = rng.randrange(max(1, min(64, len(found))))
    found[start : start + width] = rng.choice((b"\x00", b"\xff", b"\x7f", b"\x80")) * width


ACCIDENTS: tuple[Callable[[bytearray, random.Random], None], ...] = (_flip, _overwrite, _cut, _drop, _repeat, _edge)


def damaged_plain(value: Any, rng: random.Random) -> Any:
    """Plain JSON values with one of them changed, dropped or doubled, wherever it lies."""
    copied = json.loads(json.dumps(value))
    places = list(_places(copied))
    if not places:
        return rng.choice(STRANGE)
    holder, key = rng.choice(places)
    what = rng.randrange(4)
    if what == 0:
        del holder[key]
    elif what == 1 and isinstance(holder, list):
        holder.insert(key, holder[key])
    else:
        old = holder[key]
        near = (
            [old + 1, old - 1, -old, old * 1000]
            if isinstance(old, (int, float)) and not isinstance(old, bool)
            else list(STRANGE)
        )
        holder[key] = rng.choice([*near, *STRANGE])
    return copied


def _places(value: Any) -> Any:
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        yield from _places(value[key])
