"""The server over real sockets on loopback: the same digits as predict, and no answer that is another's."""

import asyncio
import http.client
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from restt_app.workflow import predict_table
from tests.restt_app.workflow.conftest import trees

pytest.importorskip("fastapi")
uvicorn = pytest.importorskip("uvicorn")

from restt_app.workflow.columns import Column  # noqa: E402
from restt_app.workflow.serving import Batcher, Limits, _BodyLimit, _Model, _values, make_app  # noqa: E402


class Server:
    """A server in a thread of its own, on a free port."""

    def __init__(self, app):
        self._server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        for _ in range(500):
            if self._server.started:
                break
            time.sleep(0.02)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    def ask(self, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request("GET" if body is None else "POST", path, content, {"content-type": "application/json"})
        answer = connection.getresponse()
        found = answer.status, json.loads(answer.read())
        connection.close()
        return found

    def close(self):
        self._server.should_exit = True
        self._thread.join(10)


def records(frame):
    return json.loads(frame.to_json(orient="records", date_format="iso"))


@pytest.fixture(scope="module")
def server(fitted):
    made = Server(make_app(fitted, Limits(body=100_000, rows=100)))
    yield made
    made.close()


def test_answers_are_those_of_predict_to_the_last_digit(server, fitted):
    new = trees(30, seed=2)
    expected = predict_table(fitted, new)
    status, found = server.ask("/predict", {"rows": records(new), "interval": 0.9})
    assert status == 200
    for name in ("prediction", "low", "high"):
        np.testing.assert_array_equal([row[name] for row in found["predictions"]], expected[name])
    status, found = server.ask("/predict", {"rows": records(new)})
    np.testing.assert_array_equal([row["prediction"] for row in found["predictions"]], expected.prediction)


def test_numbers_of_a_request_are_read_as_those_of_a_table():
    plain = Column("a", "number", "1234.5", 0, 3)
    for given in ([1, None, 2.5], ["1", "gone", "2.5"]):
        np.testing.assert_array_equal(_values(plain, given, frozenset({"gone"})), [1.0, np.nan, 2.5])
    np.testing.assert_array_equal(_values(plain, [True, None, False], frozenset()), [1.0, np.nan, 0.0])
    weight = Column("a", "number", "1234.5 kg", 0, 3)
    assert _values(weight, ["5 kg", "6kg"], frozenset()).tolist() == [5.0, 6.0]
    with pytest.raises(ValueError, match="must hold numbers as in the fit, got 5 in row 1, where they are written as"):
        _values(weight, [5, 6.0], frozenset())


def test_words_for_missing_values_are_those_of_the_fit(fitted):
    server = Server(make_app(replace(fitted, card=replace(fitted.card, source={"missing": ["gone"]}))))
    (row,) = records(trees(1, seed=2))
    answers = [server.ask("/predict", {"rows": [{**row, "girth": gone, "kind": gone}]}) for gone in ("gone", None)]
    server.close()
    assert answers[0] == answers[1]
    assert answers[0][0] == 200


def test_classes_come_with_their_probabilities(labelled):
    server = Server(make_app(labelled))
    new = trees(5, seed=2)
    expected = predict_table(labelled, new)
    _, found = server.ask("/predict", {"rows": records(new)})
    _, explained = server.ask("/explain", {"rows": records(new)})
    assert server.ask("/explain", {"rows": records(new)[:1]})[0] == 200
    server.close()
    assert [row["prediction"] for row in found["predictions"]] == expected.prediction.tolist()
    assert [row["probabilities"]["tall"] for row in found["predictions"]] == expected["probability tall"].tolist()
    for row, said in zip(explained["explanations"], expected["probability tall"], strict=True):
        total = row["tall"]["average_row"] + sum(row["tall"]["contributions"].values())
        assert total == pytest.approx(said, abs=1e-6)


def test_many_clients_get_their_own_answers_among_bad_requests(server, fitted):
    new = trees(40, seed=4)
    rows, expected = records(new), predict_table(fitted, new).prediction.tolist()
    bad = [
        b"{",
        b"[]",
        b"x" * 200_000,
        {"rows": [{"girth": 1}]},
        {"rows": [{**rows[0], "girth": "wide"}]},
        {"rows": []},
    ]

    def ask(turn):
        if turn % 4 == 3:
            return server.ask("/predict", bad[turn % len(bad)])[0] in (413, 422)
        place = turn % len(rows)
        return server.ask("/predict", {"rows": [rows[place]]})[1]["predictions"] == [{"prediction": expected[place]}]

    with ThreadPoolExecutor(16) as clients:
        assert all(clients.map(ask, range(160)))


def test_what_is_wrong_with_a_request_is_said(server):
    assert server.ask("/health")[1]["columns"] == ["girth", "kind", "planted", "watered"]
    status, said = server.ask("/predict", {"rows": [{"girth": 1.0}]})
    assert (status, said["detail"]) == (
        422,
        "row 1 lacks the column(s) 'kind', 'planted', 'watered'; a missing value is null",
    )
    row = records(trees(1))[0]
    status, said = server.ask("/predict", {"rows": [{**row, "girth": "wide"}]})
    assert (status, said["detail"][:42]) == (422, "column 'girth' must hold numbers as in the")
    assert server.ask("/predict", {"rows": [row] * 101})[0] == 422
    assert server.ask("/predict", {"rows": [row], "interval": 2})[0] == 422
    assert server.ask("/predict", b" " * 100_001) == (413, {"detail": "a request has at most 100000 bytes"})
    assert server.ask("/openapi.json")[0] == 200
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("POST", "/predict", iter([b"{}"]), {"content-type": "application/json"}, encode_chunked=True)
    assert connection.getresponse().status == 411
    connection.close()


def test_requests_that_cannot_be_read_together_are_answered_alone(fitted):
    model, (first, second) = _Model(fitted), records(trees(2, seed=2))
    expected = model.predict([first, second])
    assert model.predict_all([[first], [second, first]]) == [expected[:1], expected[::-1]]
    alone, wrong, both = model.predict_all([[second], [{**first, "girth": "wide"}], [first, second]])
    assert (alone, both) == (expected[1:], expected)
    assert isinstance(wrong, ValueError)
    assert model.check([first, second]) is None
    lacking = {name: value for name, value in second.items() if name != "kind"}
    with pytest.raises(ValueError, match=r"^row 2 lacks the column\(s\) 'kind'; a missing value is null$"):
        model.check([first, lacking])


def test_requests_that_wait_are_answered_together_up_to_the_limit():
    together = []

    def work(asked):
        together.append([len(rows) for rows in asked])
        return [ValueError("two rows") if len(rows) == 2 else len(rows) for rows in asked]

    async def run():
        batcher = Batcher(work, Limits(rows=4, waiting=5))
        asked = [asyncio.ensure_future(batcher.ask([{}] * rows)) for rows in (3, 1, 2, 1, 3)]
        await asyncio.sleep(0)
        with pytest.raises(asyncio.QueueFull):
            await batcher.ask([{}])
        running = asyncio.ensure_future(batcher.run())
        answers = await asyncio.gather(*asked, return_exceptions=True)
        running.cancel()
        batcher.close()
        return answers

    answers = asyncio.run(run())
    assert together == [[3, 1], [2, 1, 3]]
    assert [str(answer) for answer in answers] == ["3", "1", "two rows", "1", "3"]


def test_an_error_of_the_work_is_everyones_and_a_request_given_up_is_not_computed():
    asked = []

    def work(rows):
        asked.append(len(rows))
        raise ValueError("no")

    async def run():
        batcher = Batcher(work, Limits())
        gone = asyncio.ensure_future(batcher.ask([{}]))
        await asyncio.sleep(0)
        gone.cancel()
        waiting = [asyncio.ensure_future(batcher.ask([{}])) for _ in range(2)]
        running = asyncio.ensure_future(batcher.run())
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        running.cancel()
        batcher.close()
        return [str(answer) for answer in answers]

    assert asyncio.run(run()) == ["no", "no"]
    assert asked == [2]


@pytest.mark.parametrize(
    ("length", "status"), [(None, 411), (b"10", None), (b"11", 413)], ids=["unsaid", "enough", "too much"]
)
def test_a_body_is_refused_before_it_is_taken_and_read_to_an_end(length, status):
    sent, read = [], []

    async def app(scope, receive, send):
        sent.append("served")

    async def receive():
        read.append(1)
        return {"body": b"x" * 16, "more_body": len(read) < 9}

    async def send(message):
        sent.append(message)

    headers = [] if length is None else [(b"content-length", length)]
    limited = _BodyLimit(app, 10)
    asyncio.run(limited({"type": "http", "method": "POST", "headers": headers}, receive, send))
    if status is None:
        assert (sent, read) == (["served"], [])
        return
    assert (sent[0]["status"], len(read)) == (status, 5)  # up to eight times the limit
    said = "a request has at most 10 bytes" if status == 413 else "a request must have a content-length"
    assert json.loads(sent[1]["body"]) == {"detail": said}
    read[:] = [1] * 7
    asyncio.run(limited({"type": "http", "method": "POST", "headers": headers}, receive, send))
    assert len(read) == 9
    asyncio.run(limited({"type": "http", "method": "GET", "headers": []}, receive, send))
    assert sent[-1] == "served"
