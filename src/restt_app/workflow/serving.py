"""A model behind HTTP: predictions and explanations of rows sent as JSON, the same as :func:`predict_table` gives.

Requests that wait together are predicted together: each row's numbers do not depend on the others'.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import warnings
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd

from restt._common.version import __version__
from restt_app.workflow.card import FittedTable, as_fitted
from restt_app.workflow.columns import Column, listed
from restt_app.workflow.layouts import split
from restt_app.workflow.source import MISSING, strip_texts

Row = dict[str, float | int | str | bool | None]


@dataclass(frozen=True)
class Limits:
    """Limits of a server. The sizes keep a request below a second on one core at 100 columns."""

    body: int = 1 << 20  # bytes of a request
    rows: int = 1000  # of a request, and of requests predicted together
    explained: int = 50  # rows of a request to explain
    waiting: int = 1000  # requests; further ones are refused
    seconds: float = 10.0  # from a request to its answer


class Batcher:
    """Runs ``work`` on the requests that wait, together, in one thread; each gets its own answer or error."""

    def __init__(self, work: Callable[[list[list[Row]]], list[Any]], limits: Limits) -> None:
        self._work, self._limits = work, limits
        self._waiting: asyncio.Queue[tuple[list[Row], asyncio.Future[Any]]] = asyncio.Queue(limits.waiting)
        self._thread = ThreadPoolExecutor(1)

    async def ask(self, rows: list[Row]) -> Any:
        """The answer for these rows; asyncio.QueueFull or TimeoutError where the server has too much to do."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait((rows, future))
        return await asyncio.wait_for(future, self._limits.seconds)

    async def run(self) -> None:
        """Answer requests until cancelled."""
        while True:
            asked = [await self._waiting.get()]
            while not self._waiting.empty() and sum(len(rows) for rows, _ in asked) < self._limits.rows:
                asked.append(self._waiting.get_nowait())
            asked = [(rows, future) for rows, future in asked if not future.done()]  # those given up are not computed
            if not asked:
                continue
            loop = asyncio.get_running_loop()
            try:
                answers = await loop.run_in_executor(self._thread, self._work, [rows for rows, _ in asked])
            except Exception as error:  # of the work itself: every request gets it
                answers = [error] * len(asked)
            for (_, future), answer in zip(asked, answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)

    def close(self) -> None:
        """End the thread once its work is done."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class _Model:
    """A fitted table as functions of rows."""

    def __init__(self, fitted: FittedTable) -> None:
        self.card, self.estimator = fitted.card, fitted.estimator
        self.columns = [column for column in fitted.columns if column.used]
        self.names = [column.name for column in self.columns]
        self.missing = MISSING.union(self.card.source.get("missing", []))

    def check(self, rows: list[Row]) -> None:
        for place, row in enumerate(rows, start=1):
            if absent := [name for name in self.names if name not in row]:
                raise ValueError(f"row {place} lacks the column(s) {listed(absent)}; a missing value is null")

    def frame(self, rows: list[Row]) -> Any:
        inputs: dict[str, Any] = {}
        for column in self.columns:
            inputs.update(column.expanded(_values(column, [row[column.name] for row in rows], self.missing)))
        for name, values in inputs.items():
            if isinstance(values, np.ndarray) and np.isinf(values).any():
                raise ValueError(f"column {name!r} holds an infinite value")
        return pd.DataFrame(inputs, copy=False)

    def predict_all(self, asked: list[list[Row]]) -> list[Any]:
        """Predictions of several requests at once; where they cannot be read together, each alone."""
        try:
            answers = self.predict([row for rows in asked for row in rows])
        except Exception as error:
            if len(asked) == 1:
                return [error]
            return [self.predict_all([rows])[0] for rows in asked]
        ends = np.cumsum([len(rows) for rows in asked])
        return [answers[end - len(rows) : end] for rows, end in zip(asked, ends, strict=True)]

    def predict(self, rows: list[Row], interval: float | None = None) -> list[dict[str, Any]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # levels unseen in the fit
            x = self.frame(rows)
            if self.card.task == "classification":
                shares = self.estimator.predict_proba(x)
                labels = self.estimator.classes_.tolist()
                best = shares.argmax(axis=1)
                return [
                    {"prediction": labels[place], "probabilities": dict(zip(map(str, labels), row, strict=True))}
                    for place, row in zip(best.tolist(), shares.tolist(), strict=True)
                ]
            values = np.asarray(self.estimator.predict(x)).tolist()
            if interval is None:
                return [{"prediction": value} for value in values]
            ends = self.estimator.predict_interval(x, interval).tolist()
            return [
                {"prediction": value, "low": low, "high": high} for value, (low, high) in zip(values, ends, strict=True)
            ]

    def explain(self, rows: list[Row]) -> list[dict[str, Any]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            local = self.estimator.explain_local(self.frame(rows)).on()
        labels = [str(label) for label in self.card.classes]
        outputs = labels[1:] if len(labels) == 2 else labels or [self.card.target]
        return [
            {
                output: {
                    "average_row": float(local.base[place]),
                    "prediction": float(local.predictions[row, place]),
                    "contributions": dict(zip(local.names, local.values[row, :, place].tolist(), strict=True)),
                }
                for place, output in enumerate(outputs)
            }
            for row in range(len(rows))
        ]


def _values(column: Column, values: list[Any], missing: frozenset[str]) -> Any:
    """Values of a column as :meth:`Column.values` gives them; numbers, the usual case, without pandas."""
    if column.kind == "number" and split(column.layout)[::2] == ("", ""):
        numbers = [np.nan if value is None else value for value in values]
        if all(type(value) in (float, int) for value in numbers):
            return np.array(numbers, dtype=np.float64)
    series = pd.Series(values, dtype=object, name=column.name).to_frame()
    return column.values(strip_texts(series, missing)[column.name])


def make_app(model: str | PathLike[str] | FittedTable, limits: Limits | None = None) -> Any:
    """The ASGI application of a model: ``/health``, ``/predict``, ``/explain``, and ``/docs``.

    Parameters
    ----------
    model : path or FittedTable
    limits : Limits, optional
    """
    try:
        from fastapi import FastAPI, HTTPException
        from fastapi.responses import JSONResponse
        from pydantic import BaseModel, Field
    except ImportError as error:
        raise ImportError(f"restt serve needs {error.name}: pip install 'restt[serve]'") from None

    most = limits or Limits()
    served = _Model(as_fitted(model))
    predicting = Batcher(served.predict_all, most)

    class Asked(BaseModel):
        rows: list[Row] = Field(min_length=1, max_length=most.rows)
        interval: float | None = Field(None, gt=0, lt=1, description="What intervals of a regression hold")

    class Explained(BaseModel):
        rows: list[Row] = Field(min_length=1, max_length=most.explained)

    @contextlib.asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        task = asyncio.create_task(predicting.run())
        yield
        task.cancel()
        predicting.close()

    app = FastAPI(title=f"Model of {served.card.target}", version=__version__, lifespan=lifespan)
    alone = asyncio.Semaphore(1)

    async def answered(name: str, rows: list[Row], work: Callable[[], Any] | None = None) -> Any:
        try:
            served.check(rows)
            if work is None:
                return JSONResponse({name: await predicting.ask(rows)})
            async with asyncio.timeout(most.seconds), alone:
                return JSONResponse({name: await asyncio.to_thread(work)})
        except (asyncio.QueueFull, TimeoutError):
            raise HTTPException(503, "too many requests are waiting: try again later") from None
        except (ValueError, TypeError, OverflowError) as error:
            raise HTTPException(422, " ".join(str(error).split())) from None

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Whether the server answers, and what it serves."""
        return {"status": "ok", "task": served.card.task, "target": served.card.target, "columns": served.names}

    async def predict(asked: Asked) -> Any:
        """Predict rows: a number, with an interval where one is asked for, or a class with all probabilities."""
        if asked.interval is None or served.card.task == "classification":
            return await answered("predictions", asked.rows)
        # Alone: the bounds of several requests together could differ from theirs in the last digit.
        return await answered("predictions", asked.rows, lambda: served.predict(asked.rows, asked.interval))

    async def explain(asked: Explained) -> Any:
        """Explain rows: what each column adds to each prediction, in the units of the target or as probability."""
        return await answered("explanations", asked.rows, lambda: served.explain(asked.rows))

    # Annotations of local classes are texts here, which the framework could not resolve.
    predict.__annotations__["asked"], explain.__annotations__["asked"] = Asked, Explained
    app.post("/predict")(predict)
    app.post("/explain")(explain)
    app.add_middleware(_BodyLimit, most=most.body)
    return app


class _BodyLimit:
    """Refuse a request whose body is too large, or does not say how large it is, before it is read."""

    def __init__(self, app: Any, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length")
        if length is not None and int(length) <= self._most:
            await self._app(scope, receive, send)
            return
        read, more = 0, True
        while more and read < 8 * self._most:  # a connection closed on unread bytes would lose the answer
            message = await receive()
            read, more = read + len(message.get("body", b"")), message.get("more_body", False)
        too_large = 413, f"a request has at most {self._most} bytes"
        status, text = too_large if length is not None else (411, "a request must have a content-length")
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps({"detail": text}).encode()})


def serve(model: str | PathLike[str], *, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve a model until stopped; only this machine can ask unless ``host`` says otherwise."""
    app = make_app(model)
    import uvicorn

    uvicorn.run(app, host=host, port=port, log_level="warning", access_log=False, timeout_keep_alive=5, backlog=256)
