"""When tests of the compiled path may be skipped: only where there is nothing to compile with."""

from __future__ import annotations

import os

import pytest

from restt.chain.cpu import build

_SWITCHED_OFF = os.environ.get(build.DISABLE_VARIABLE, "0") not in ("", "0")

# Not where the build fails: a compiler that is there and code that it refuses is what these tests are to find.
needs_compiler = pytest.mark.skipif(
    _SWITCHED_OFF or not build.compilers(), reason=f"no C compiler was found, or {build.DISABLE_VARIABLE} is set"
)
