"""No test here may reach beyond this machine, and none writes to the user's cache."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from restt import data

LOCAL = ("127.0.0.1", "localhost", None)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def local_only(host: Any, *rest: Any, **options: Any) -> Any:
        if host not in LOCAL:
            raise socket.gaierror(f"the network is off in tests, {host} was asked for")
        return resolve(host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", local_only)
    for proxy in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)


@pytest.fixture
def empty_homes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No data anywhere; the user's cache is a fresh folder, returned."""
    monkeypatch.delenv("RESTT_DATA_HOME", raising=False)
    cache = tmp_path / "cache"
    monkeypatch.setattr("restt.data.loading.user_cache", lambda: cache)
    monkeypatch.setattr("restt.data.loading.system_folders", lambda: ())
    return cache


@pytest.fixture
def load_or_skip() -> Callable[..., data.Dataset]:
    """``data.load`` of local files, or a skip that says how to get them."""

    def load(name: str, **options: Any) -> data.Dataset:
        try:
            return data.load(name, download=False, **options)
        except FileNotFoundError:
            pytest.skip(
                f"{name} is not here: run `restt data fetch {name}` or point RESTT_DATA_HOME at a folder with it"
            )

    return load
