"""Load a model's server on loopback and record requests a second, errors, wrong answers and growth of memory.

    python tools/load_server.py [--seconds 30] [--clients 64] [--rows 300] [--record serving-http]

One process of `restt serve` and one of clients: every tenth request is malformed, huge, or of a wrong type. Needs the
extra ``serve``. Writes ``results/bench/<record>.json``.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from common import parser, write_results

from restt.workflow import fit_table, predict_table

COLUMNS = 20


def main() -> None:
    reader = parser(__doc__)
    for name, default in (("seconds", 30), ("clients", 64), ("rows", 300)):
        reader.add_argument(f"--{name}", type=int, default=default)
    reader.add_argument("--record", default=None)
    given = reader.parse_args()
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(given.rows, COLUMNS)), columns=[f"c{k}" for k in range(COLUMNS)])
    table["y"] = table.c0 * table.c1 + table.c2
    fitted = fit_table(table, "y", effort="quick")
    rows = json.loads(table.drop(columns="y").to_json(orient="records", double_precision=15))
    # What JSON keeps of a number is what the server gets: the expected answers are those of these rows.
    expected = predict_table(fitted, pd.DataFrame(rows), interval=None).prediction.tolist()
    with tempfile.TemporaryDirectory() as folder:
        model, port = fitted.save(Path(folder) / "model"), _free_port()
        server = subprocess.Popen([sys.executable, "-m", "restt", "serve", str(model), "--port", str(port)])
        try:
            _wait(server, port)
            asyncio.run(_load(port, rows, expected, given.clients, 2.0))  # what is allocated once is allocated
            before, spent = _memory(server.pid), _processor_seconds(server.pid)
            results = asyncio.run(_load(port, rows, expected, given.clients, given.seconds))
            spent = _processor_seconds(server.pid) - spent
            results |= {"memory_before_mib": before, "memory_after_mib": _memory(server.pid)}
            # What a request costs whatever else the machine does: its inverse is what one quiet core can answer.
            results["server_ms_per_request"] = round(1e3 * spent / max(1, results["answered"] + results["refused"]), 3)
        finally:
            server.terminate()
            server.wait(20)
    results |= {"seconds": given.seconds, "clients": given.clients, "columns": COLUMNS, "cores": os.cpu_count()}
    results["load_average"] = os.getloadavg()[0]
    print(json.dumps(results, indent=2))
    if given.record:
        options = f"--seconds {given.seconds} --clients {given.clients} --rows {given.rows} --record {given.record}"
        write_results(f"bench/{given.record}.json", {"results": results}, f"load_server.py {options}")


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def _wait(server: subprocess.Popen, port: int) -> None:
    while server.poll() is None:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError(f"the server ended with code {server.returncode}")


def _memory(process: int) -> float:
    """Resident memory in MiB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def _processor_seconds(process: int) -> float:
    """Seconds of processor time, of the program and of the system on its behalf."""
    times = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


async def _load(port: int, rows: list[dict], expected: list[float], clients: int, seconds: float) -> dict:
    counts = {"answered": 0, "refused": 0, "wrong": 0, "server_errors": 0}
    bad = [
        b"{",
        b"[1]",
        b"x" * (2 << 20),
        b'{"rows":[{"c0":1}]}',
        json.dumps({"rows": [{**rows[0], "c0": "x"}]}).encode(),
    ]
    times: list[float] = []
    end = time.monotonic() + seconds

    async def client(number: int) -> None:
        reader, writer, turn = None, None, number
        while time.monotonic() < end:
            turn += 1
            place = turn % len(rows)
            body = bad[turn % len(bad)] if turn % 10 == 0 else json.dumps({"rows": [rows[place]]}).encode()
            began = time.monotonic()
            try:
                if writer is None:
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                status, answer = await _ask(reader, writer, body)
            except (ConnectionError, asyncio.IncompleteReadError, ValueError):
                reader = writer = None  # closed after a body that was too large
                counts["refused"] += 1
                continue
            times.append(time.monotonic() - began)
            if status >= 500:
                counts["server_errors"] += 1
            elif turn % 10 == 0:
                counts["refused"] += 1
            else:
                counts["answered"] += 1
                counts["wrong"] += answer != {"predictions": [{"prediction": expected[place]}]}
            if status == 413:
                writer.close()
                reader = writer = None
        if writer is not None:
            writer.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    milliseconds = 1e3 * np.quantile(times, [0.5, 0.99])
    return {
        **counts,
        "requests_per_second": round(len(times) / seconds, 1),
        "median_ms": milliseconds[0],
        "p99_ms": milliseconds[1],
    }


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> tuple[int, object]:
    head = f"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    status = int(lines[0].split()[1])
    length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length")), None)
    if length is None:
        return status, None
    return status, json.loads(await reader.readexactly(length))


if __name__ == "__main__":
    main()
