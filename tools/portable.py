"""The tests as on processors that can do less than this one, with one thread and with two.

Each setting holds torch, MKL, oneDNN, OpenBLAS, numpy and the compiled chain down to one instruction set of x86-64, by
their own environment variables. A test that passes under all of them does not depend on who made the processor.

Run by `make test-portable`. ``--only avx2`` takes one setting; other arguments are handed to pytest, tests among them.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from numpy._core._multiarray_umath import __cpu_dispatch__ as NUMPYS

ROOT = Path(__file__).resolve().parent.parent
NUMPYS_512 = [name for name in NUMPYS if "512" in name or name == "X86_V4"]
SETTINGS = {
    "sse": {
        "OMP_NUM_THREADS": "1",
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "OPENBLAS_CORETYPE": "Nehalem",
        "NPY_DISABLE_CPU_FEATURES": " ".join(NUMPYS),
    },
    "avx2": {
        "OMP_NUM_THREADS": "2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": " ".join(NUMPYS_512),
    },
    "native": {"OMP_NUM_THREADS": "2"},
}
# Of the compiled chain. Tuned for AMD's processors GCC would fuse multiply-adds by the length of a vector.
TARGETS = {"sse": "-march=x86-64-v2 -mtune=znver2", "avx2": "-march=x86-64-v3 -mtune=znver2"}
# Left out, since other processors change nothing in them or their code runs in what is left too: kernels under Triton's
# interpreter, damaged files, browsers, documents and the paper's studies.
LEFT_OUT = ("tests/chain/cuda", "tests/fuzz", "tests/restt_app/pages", "tests/restt_paper", "tests/test_documents.py")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=SETTINGS, help="one setting instead of all")
    parser.add_argument("-n", dest="workers", default="auto", help="how many processes run tests: pytest-xdist's")
    given, arguments = parser.parse_known_args()
    if platform.machine() not in ("x86_64", "AMD64"):
        sys.exit(f"the settings are of x86-64, this is {platform.machine()}")
    tests = arguments or ["tests", *(f"--ignore={path}" for path in LEFT_OUT)]
    failed = [name for name in SETTINGS if given.only in (None, name) and not passes(name, tests, given.workers)]
    for name in failed:
        print(f"portable: failed: {name}", file=sys.stderr)
    return bool(failed)


def passes(name: str, tests: list[str], workers: str) -> bool:
    print(f"portable: {name}: {' '.join(tests)}", flush=True)
    command = [sys.executable, "-m", "pytest", "--numprocesses", workers, "--dist", "worksteal", *tests]
    with tempfile.TemporaryDirectory() as folder:
        # Caches of its own, since code built for another target is of no use afterwards, and sizes in graphs differ.
        caches = {"XDG_CACHE_HOME": folder, "TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / "inductor")}
        environment = {**os.environ, **SETTINGS[name], **caches}
        compiler = shutil.which(os.environ.get("CC") or "cc")
        if compiler and name in TARGETS:
            environment["CC"] = str(Path(folder) / "cc")
            Path(environment["CC"]).write_text(f'#!/bin/sh\nexec {compiler} "$@" {TARGETS[name]}\n')
            Path(environment["CC"]).chmod(0o755)
        return subprocess.run(command, cwd=ROOT, env=environment).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
