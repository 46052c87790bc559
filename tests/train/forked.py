"""The processes of a scene as copies of one that has loaded everything, which takes longer than most scenes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]


def launch(module: str, *words: str) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each of the processes that ``python -m module words…`` runs by ``fork``."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    process = subprocess.Popen(
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        told, errors = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 0, errors
    return [tuple(end) for end in json.loads(told)]


def fork(main: Callable[[int], None], size: int) -> None:
    """``main(rank)`` in a process per rank; prints how they ended."""
    with ExitStack() as opened:
        heard = [[opened.enter_context(tempfile.TemporaryFile("w+")) for _ in ("out", "err")] for _ in range(size)]
        children = [_begun(main, rank, files) for rank, files in enumerate(heard)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(json.dumps([(code, *map(_read, files)) for code, files in zip(codes, heard, strict=True)]))


def _begun(main: Callable[[int], None], rank: int, files: list[IO[str]]) -> int:
    child = os.fork()
    if child:
        return child
    for descriptor, file in enumerate(files, start=1):
        os.dup2(file.fileno(), descriptor)
    code = 0
    try:
        main(rank)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # what the first process has still to do at its end is not for its copies


def _read(file: IO[str]) -> str:
    file.seek(0)
    return file.read()
