"""Checkpoints of a training in one folder: ``last``, the one before it, and ``best``.

``last.safetensors`` holds everything a training needs to go on bit for bit; ``previous.safetensors`` is the one before,
used where the last is damaged; ``best.safetensors`` holds each run's best weights alone. A checkpoint goes on with the
training it belongs to: the fingerprint lists data and parameters entry by entry, so that a refusal can name what
differs. One training at a time uses a folder, which a lock sees to.
"""

from __future__ import annotations

import errno
import hashlib
import json
import threading
import time
import warnings
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from restt._common.lock import Lock, holder
from restt._common.tensorfile import BadFile, Kind, open_file, remove_leftovers, tensor_bytes, write_file
from restt.train.config import TrainConfig
from restt.train.data import RunData
from restt.train.records import Event
from restt.train.runs import RunsView, per_run
from restt.train.state import TrainState
from restt.train.stream import StreamData

CHECKPOINT = Kind("restt-checkpoint-1", "state")
LAST, PREVIOUS, BEST, LOCK = "last.safetensors", "previous.safetensors", "best.safetensors", ".training.lock"
# Writing takes at most one part in this many of the time: epochs shorter than that share a checkpoint.
WORK_PER_WRITE = 20.0
# What a file system without locks answers, and a folder that may only be read.
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)

# The trainings of this process by their lock file: a newer one takes a folder over from an older one that was left.
_trainings: weakref.WeakValueDictionary[Path, Checkpoints] = weakref.WeakValueDictionary()
_taking = threading.Lock()


class Checkpoints:
    """Reads and writes one training's folder, which is its own until :meth:`release`.

    ``entries`` is the training's fingerprint.
    """

    def __init__(self, folder: str | Path, entries: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        self.entries: dict[str, Any] = json.loads(json.dumps(entries))
        self.seeds: list[int] = []
        self.saved_epoch = -1  # of the newest checkpoint in the folder
        self._last_is_good = False
        self._best_epochs: list[int] | None = None
        self._written = 0.0
        self._cost = 0.0
        self._lock: Lock | None = None
        self._unlocked = False  # where no lock can be had
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock_path = self.folder.resolve() / LOCK
            self._take(over=False)
        except OSError as error:
            raise self._failure("make the checkpoint folder", error) from error

    def _take(self, over: bool) -> None:
        """Make the folder this training's own. What another process holds is refused.

        What an older training of this process holds is only taken with ``over``, once this is known to be the same
        training: a notebook's interrupted cell holds its folder for as long as its traceback is shown.
        """
        with _taking:
            before = _trainings.get(self._lock_path)
            if self.ours or (before is not None and before.ours and not over):
                return
            if before is not None and before.ours:
                self._lock, before._lock = before._lock, None
            else:
                self._lock = self._new_lock()
                for name in (LAST, PREVIOUS, BEST) if self._lock is not None else ():
                    remove_leftovers(self.folder / name)
            _trainings[self._lock_path] = self

    def _new_lock(self) -> Lock | None:
        try:
            lock = Lock.take(self._lock_path)
        except OSError as error:
            if error.errno not in NO_LOCKS + READ_ONLY:
                raise
            self._unlocked = True  # a finished training can be told from a folder that may only be read
            if error.errno in NO_LOCKS:
                warnings.warn(
                    f"the file system of checkpoint_dir {self.folder} has no locks: make sure that no other process "
                    "trains into it",
                    RuntimeWarning,
                    stacklevel=6,
                )
            return None
        if lock is None:
            process = holder(self._lock_path)
            who = "another process" if process is None else f"process {process}"
            raise RuntimeError(
                f"checkpoint_dir {self.folder} is in use: {who} trains into it. Wait until it is done, or choose "
                "another folder"
            )
        return lock

    @property
    def ours(self) -> bool:
        """Whether this training may write: no newer one has taken the folder over, and this is no forked child."""
        return self._unlocked or (self._lock is not None and self._lock.ours)

    def release(self) -> None:
        """Let others have the folder."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def load(self, state: TrainState) -> tuple[list[Event], list[int]]:
        """Bring ``state`` to the newest good checkpoint; nothing happens in an empty folder.

        Returns what happened, and the finished runs that now have more epochs than they had done. Raises ValueError
        where the checkpoint belongs to another training, saying what differs, and where there are checkpoints but none
        is good.
        """
        refused: list[str] = []
        for name in (LAST, PREVIOUS):
            path = self.folder / name
            try:
                tensors, plain = open_file(path, CHECKPOINT).load()
            except FileNotFoundError:
                continue
            except BadFile as error:
                refused.append(str(error))
                continue
            except OSError as error:
                raise self._failure("read", error) from error
            try:
                lines, lengthened = self._compare(plain, state.published.runs)
                if not lines:
                    self._take(over=True)
                    state.restore(tensors, plain)
                    self.seeds = list(plain["seeds"])
            except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
                raise ValueError(f"{path} does not describe a training: {type(error).__name__} {error}") from error
            if lines:
                raise ValueError(
                    f"checkpoint_dir {self.folder} holds another training; choose another folder or set back:\n  "
                    + "\n  ".join(lines)
                )
            self.saved_epoch = state.epoch
            self._last_is_good = name == LAST
            events = [Event("checkpoint-refused", f"{text}; {name} is used instead") for text in refused]
            return [*events, Event("resumed", f"goes on after epoch {state.epoch} from {path}")], lengthened
        if refused:
            raise ValueError(
                "no usable checkpoint: " + "; ".join(refused) + f". Delete {self.folder} to start from the beginning"
            )
        if (self.folder / BEST).exists():
            raise ValueError(
                f"checkpoint_dir {self.folder} holds {BEST} but neither {LAST} nor {PREVIOUS}, so the training cannot "
                f"go on: choose another folder, or delete {BEST} to start from the beginning"
            )
        self._take(over=True)
        return [], []

    def _compare(self, plain: Mapping[str, Any], runs: int) -> tuple[list[str], list[int]]:
        """What differs, one line each; and which finished runs train on: more epochs are still the same training."""
        # Trainings of restt 0.10 and before had uniform rates.
        saved, now = {"rates": "uniform"} | plain["fingerprint"], self.entries
        others = differences({**saved, "epochs": now["epochs"]}, now)
        if saved["epochs"] == now["epochs"] or others:
            return differences(saved, now), []
        before, after = (per_run("epochs", entries["epochs"], runs) for entries in (saved, now))
        if any(new < old for old, new in zip(before, after, strict=True)):
            return differences(saved, now), []
        ended = {event["run"]: event["kind"] for record in plain["history"] for event in record["events"]}
        working = {values["run"] for values in plain["runs"]}
        done = [
            run
            for run in range(runs)
            if after[run] > before[run] and run not in working and ended.get(run) == "finished"
        ]
        held = {values["run"] for values in plain.get("finished", [])}
        if not held.issuperset(done):
            gone = ", ".join(str(run) for run in done if run not in held)
            why = f"run {gone} was done before the others, or in restt 0.1, and its state is not there to train on"
            return [f"{line} ({why})" for line in differences(saved, now)], []
        return [], done

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
                f"checkpoint_dir {self.folder} is in use: a newer training has taken it over, or this process was "
                "forked from the one that trains into it"
            )
        began = time.monotonic()
        tensors, plain = state.save()
        common = {"fingerprint": self.entries, "seeds": self.seeds}
        try:
            keep_as = self.folder / PREVIOUS if self._last_is_good else None
            write_file(self.folder / LAST, CHECKPOINT, tensors, plain | common, keep_as=keep_as)
            self.saved_epoch, self._last_is_good = state.epoch, True
            best_epochs = _best_epochs(state)
            if state.best is not None and best_epochs != self._best_epochs:
                weights = {f"best/{name}": value for name, value in state.best.items()}
                write_file(self.folder / BEST, CHECKPOINT, weights, {"epoch": state.epoch, **common})
                self._best_epochs = best_epochs
        except OSError as error:
            raise self._failure("write a checkpoint to", error) from error
        self._written = time.monotonic()
        self._cost = self._written - began

    def how_to_resume(self) -> str:
        """What to tell a user whose training stops here."""
        return (
            f"epoch {self.saved_epoch} is saved in {self.folder}; "
            f"make the same call again, with checkpoint_dir={str(self.folder)!r}, to go on from there"
        )

    def _failure(self, action: str, error: OSError) -> OSError:
        kept = "" if self.saved_epoch < 0 else f"; {self.how_to_resume()}"
        reason = error.strerror or str(error)
        return type(error)(error.errno, f"could not {action} {self.folder}: {reason}{kept}")


@torch.no_grad()
def load_weights(module: nn.Module, path: str | Path) -> None:
    """Copy the weights of a checkpoint into ``module``: the best ones of ``best.safetensors``, else those of its epoch.

    ``path`` is a file or a checkpoint folder, of which ``best.safetensors`` is taken, or ``last.safetensors`` where
    there is none. Raises ValueError where the file is damaged or does not fit the module.
    """
    file = Path(path)
    if file.is_dir():
        file = file / BEST if (file / BEST).exists() else file / LAST
    tensors, _ = open_file(file, CHECKPOINT).load()
    group = "best/" if file.name == BEST else "module/"
    own = RunsView(module).weights
    saved = {name.removeprefix(group): value for name, value in tensors.items() if name.startswith(group)}
    found, wanted = _shapes(saved), _shapes(own)
    if found != wanted:
        raise ValueError(f"{file} does not fit the module: it holds {found}, the module has {wanted}")
    for name, value in own.items():
        value.copy_(saved[name])


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in sorted(tensors.items())}


def _best_epochs(state: TrainState) -> list[int]:
    """Changes whenever some run's best weights change."""
    finished = len(state.runs)
    return [finished, *(run.best_epoch for run in state.runs)]


def fingerprint(
    module: nn.Module,
    config: TrainConfig,
    data: RunData | StreamData,
    validation: RunData | None,
    feature_map: Any,
    extra: Mapping[str, Any],
) -> dict[str, Any]:
    """Entries of JSON values. Initial weights and a seed not given are left out: the checkpoint has its own."""
    entries: dict[str, Any] = dict(config.to_dict())
    entries["module"] = _module_entry(module)
    entries["feature_map"] = _function_entry(feature_map)
    for prefix, rows in (("", data), ("validation ", validation)):
        if isinstance(rows, StreamData):
            entries["x"] = _plain(rows.source.to_config())
        elif rows is not None:
            entries[f"{prefix}x"] = _tensor_entry(rows.x)
            entries[f"{prefix}y"] = _tensor_entry(rows.target)
            entries[f"{prefix}sample_weight"] = _tensor_entry(rows.weight)
            entries[f"{prefix}subset"] = _tensor_entry(rows.index)
            entries[f"{prefix}rows per run"] = list(rows.sizes)
        else:
            entries[f"{prefix}x"] = None
    return entries | {name: _plain(value) for name, value in extra.items()}


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One line per entry that is not the same.

    >>> differences({"lr": 0.1, "epochs": 3}, {"lr": 0.2, "epochs": 3})
    ['lr: 0.1 in the checkpoint, 0.2 now']
    """
    lines = []
    for name in [*saved, *(name for name in now if name not in saved)]:
        before, after = saved.get(name), now.get(name)
        if before != after:
            lines.append(f"{name}: {before} in the checkpoint, {after} now")
    return lines


def _module_entry(module: nn.Module) -> str:
    shapes = ", ".join(f"{name}{tuple(value.shape)}" for name, value in module.state_dict().items())
    dtype = next(module.parameters()).dtype
    parts = [f"{type(module).__name__} {dtype} {shapes}"]
    topology = getattr(module, "topology", None)
    if topology is not None:
        parts.append(f"topology {_short_hash(repr((topology.chains, topology.linears, topology.skips)).encode())}")
    widths = getattr(module, "feature_dims", None)
    if widths is not None:
        parts.append(f"widths {_short_hash(repr(widths).encode())}")
    return "; ".join(parts)


def _function_entry(function: Any) -> Any:
    if function is None:
        return None
    if hasattr(function, "to_config"):
        return _plain(function.to_config())
    if hasattr(function, "__qualname__"):
        return f"{function.__module__}.{function.__qualname__}"
    return type(function).__qualname__


def _tensor_entry(value: Tensor | None) -> str | None:
    if value is None:
        return None
    return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')} #{_short_hash(tensor_bytes(value))}"


def _short_hash(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """As JSON gives it back, so that a saved entry compares equal to a fresh one."""
    if isinstance(value, Tensor):
        return _tensor_entry(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (torch.dtype, torch.device)):
        return str(value)
    return value
