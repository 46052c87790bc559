"""The checkpoint of a training: one file in a folder, replaced as the training goes on.

``last.safetensors`` holds everything a training needs to go on bit for bit. It goes on only with the training it
belongs to: the fingerprint lists data and parameters entry by entry, so that a refusal can name what differs. A lock
keeps a folder to one training at a time.
"""

from __future__ import annotations

import hashlib
import json
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from torch import Tensor, nn

from restt._common.errors import warn_caller
from restt._common.tensorfile import BadFile, Kind, open_file, tensor_bytes, write_file
from restt.train.config import TrainConfig
from restt.train.data import RunData
from restt.train.records import Event
from restt.train.runs import per_run
from restt.train.state import TrainState

CHECKPOINT = Kind("restt-checkpoint-3", "state")
LAST, LOCK = "last.safetensors", ".training.lock"
# Writing takes at most one part in this many of the time: epochs shorter than that share a checkpoint.
WORK_PER_WRITE = 20.0
# Errors of reading values of the wrong kind or shape.
UNREADABLE = (AttributeError, LookupError, TypeError, ValueError, RuntimeError)

# The newest training of this process in each folder.
_trainings: weakref.WeakValueDictionary[Path, Checkpoints] = weakref.WeakValueDictionary()


class Checkpoints:
    """Reads and writes one training's folder, which is its own until :meth:`release`.

    ``entries`` is the training's fingerprint; ``seeds`` are those of its runs, unless the folder has others.
    """

    def __init__(self, folder: str | Path, entries: Mapping[str, Any], seeds: Sequence[int]) -> None:
        self.folder, self.path = Path(folder), Path(folder) / LAST
        self.entries, self.seeds = dict(entries), list(seeds)
        self.saved_epoch = -1  # of the checkpoint in the folder
        self._written = self._cost = 0.0
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._failure("make the checkpoint folder", error) from error
        self._key = self.folder.resolve()
        self._lock = FileLock(self._key / LOCK, thread_local=False)

    def load(self, state: TrainState) -> list[Event]:
        """Bring ``state`` to the checkpoint, or write a first one into an empty folder.

        Raises ValueError where the checkpoint is damaged or belongs to another training, saying what differs, and
        RuntimeError where another process trains into the folder.
        """
        plain: dict[str, Any] | None = None
        try:
            tensors, plain = open_file(self.path, CHECKPOINT).load()
        except FileNotFoundError:
            pass
        except BadFile as error:
            raise ValueError(
                f"no usable checkpoint: {error}. Delete {self.folder} to start from the beginning"
            ) from None
        except OSError as error:
            raise self._failure("read", error) from error
        events = []
        try:
            if plain is not None:
                with self._reading():
                    lines = self._differences(plain, state.published.runs)
                if lines:
                    raise ValueError(
                        f"checkpoint_dir {self.folder} holds another training; choose another folder or set back:\n  "
                        + "\n  ".join(lines)
                    )
            # Only now: a training of this process that has the folder gives it to the same training, and to no other.
            self._acquire()
            if plain is not None:
                with self._reading():
                    self._restore(tensors, plain, state)
                events.append(Event("resumed", f"goes on after epoch {state.epoch} from {self.path}"))
            # At once, so that a folder that cannot be written is known before any work is done.
            self.save(state)
        except BaseException:
            self.release()
            raise
        return events

    def _acquire(self) -> None:
        """Lock the folder; an older training of this process gives way, as an interrupted notebook cell should."""
        older = _trainings.get(self._key)
        if older is not None:
            older.release()
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise RuntimeError(
                f"checkpoint_dir {self.folder} is in use: another process trains into it. Wait until it is done, or "
                "choose another folder"
            ) from None
        except OSError as error:  # no locks, or a folder that may only be read
            warn_caller(
                f"checkpoint_dir {self.folder} cannot be locked ({error.strerror or error}): make sure that no other "
                "process trains into it",
                RuntimeWarning,
            )
        _trainings[self._key] = self

    @property
    def ours(self) -> bool:
        """Whether this training may write: no newer one has taken the folder over."""
        return _trainings.get(self._key) is self

    def release(self) -> None:
        """Unlock the folder."""
        self._lock.release()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Refuse a checkpoint whose values are not those of a training."""
        try:
            yield
        except UNREADABLE as error:
            raise ValueError(f"{self.path} does not describe a training: {type(error).__name__} {error}") from error

    def _differences(self, plain: Mapping[str, Any], runs: int) -> list[str]:
        """Describe what differs from a saved training; more epochs for runs that can go on are no difference."""
        saved, now = plain["fingerprint"], self.entries
        before, after = (per_run("epochs", entries["epochs"], runs) for entries in (saved, now))
        places = {values["place"] for values in plain["runs"]}
        longer = [run for run in range(runs) if after[run] > before[run]]
        ended = {event["run"]: event["kind"] for record in plain["history"] for event in record["events"]}
        gone = [run for run in longer if run not in places and ended.get(run) == "finished"]
        if any(new < old for old, new in zip(before, after, strict=True)) or gone:
            return differences(saved, now)
        return differences({**saved, "epochs": now["epochs"]}, now)

    def _restore(self, tensors: dict[str, Tensor], plain: dict[str, Any], state: TrainState) -> None:
        """Bring ``state`` to a checkpoint; finished runs that now have more epochs train on."""
        state.restore(tensors, plain)
        self.seeds = list(plain["seeds"])
        epochs = per_run("epochs", self.entries["epochs"], state.published.runs)
        for run in state.runs:
            if run.ended == "finished" and epochs[run.place] > state.epoch:
                run.ended = ""
        state.drop_ended()
        self.saved_epoch = state.epoch

    def due(self) -> bool:
        """Whether enough work has been done since the last write."""
        return time.monotonic() - self._written >= WORK_PER_WRITE * self._cost

    def save(self, state: TrainState) -> None:
        """Write the state; nothing happens where it is already there.

        Raises OSError that says what is wrong; the checkpoint before is then untouched.
        """
        if state.epoch == self.saved_epoch:
            return
        if not self.ours:
            raise RuntimeError(
                f"checkpoint_dir {self.folder} is in use: a newer training of this process has taken it over"
            )
        began = time.monotonic()
        tensors, plain = state.save()
        plain |= {"fingerprint": self.entries, "seeds": self.seeds}
        try:
            write_file(self.path, CHECKPOINT, tensors, plain)
        except OSError as error:
            raise self._failure("write a checkpoint to", error) from error
        self.saved_epoch, self._written = state.epoch, time.monotonic()
        self._cost = self._written - began

    def how_to_resume(self) -> str:
        """Say how a training that stops here goes on."""
        return (
            f"epoch {self.saved_epoch} is saved in {self.folder}; "
            f"make the same call again, with checkpoint_dir={str(self.folder)!r}, to go on from there"
        )

    def _failure(self, action: str, error: OSError) -> OSError:
        kept = "" if self.saved_epoch < 0 else f"; {self.how_to_resume()}"
        reason = error.strerror or str(error)
        return type(error)(error.errno, f"could not {action} {self.folder}: {reason}{kept}")


def fingerprint(
    module: nn.Module,
    config: TrainConfig,
    data: RunData,
    validation: RunData | None,
    feature_map: Any,
) -> dict[str, Any]:
    """Describe a training by JSON values. Initial weights and a drawn seed are left out: the checkpoint has its own."""
    entries: dict[str, Any] = {**config.to_dict(), "module": _module_entry(module)}
    entries["feature_map"] = _function_entry(feature_map)
    for prefix, rows in (("", data), ("validation ", validation)):
        if rows is not None:
            entries |= {f"{prefix}{name}": value for name, value in rows.tensors().items()}
    # In the form in which JSON gives them back, so that a saved entry compares equal to a fresh one.
    read: dict[str, Any] = json.loads(json.dumps(entries, default=_json_entry))
    return read


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describe the entries that differ, one line each.

    >>> differences({"lr": 0.1, "epochs": 3}, {"lr": 0.2, "epochs": 3})
    ['lr: 0.1 in the checkpoint, 0.2 now']
    """
    return [
        f"{name}: {saved.get(name)} in the checkpoint, {now.get(name)} now"
        for name in dict.fromkeys([*saved, *now])
        if saved.get(name) != now.get(name)
    ]


def _module_entry(module: nn.Module) -> str:
    shapes = ", ".join(f"{name}{tuple(value.shape)}" for name, value in module.state_dict().items())
    parts = [f"{type(module).__name__} {next(module.parameters()).dtype} {shapes}"]
    for name in ("topology", "feature_dims"):
        if hasattr(module, name):
            parts.append(f"{name} {_short_hash(repr(getattr(module, name)).encode())}")
    return "; ".join(parts)


def _function_entry(function: Any) -> Any:
    if hasattr(function, "to_config"):
        return function.to_config()
    if function is None:
        return None
    return getattr(function, "__qualname__", type(function).__qualname__)


def _tensor_entry(value: Tensor | None) -> str | None:
    if value is None:
        return None
    return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')} #{_short_hash(tensor_bytes(value))}"


def _json_entry(value: Any) -> Any:
    """Text for what JSON has no form for: tensors by their hash, torch's types and devices by their names."""
    return _tensor_entry(value) if isinstance(value, Tensor) else str(value)


def _short_hash(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
