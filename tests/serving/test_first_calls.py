"""Which programs a server runs before its first request and between requests, and what it learns from slow calls."""

import asyncio
import collections
import time
import types

import pytest

from serving import service
from serving.answers.first_calls import each_length
from serving.answers.pace import Pace
from serving.turns import Admission


class Texts:
    """Notes the requests that it gets."""

    paces = ()
    score = fill = encode = classify = label = regress = choose = tag = answer = None

    def __init__(self, route):
        self.asked = []
        setattr(self, route, self.note)

    async def note(self, request, record):
        self.asked.append(request)


@pytest.mark.parametrize(
    ("route", "inputs", "lengths"), [("score", {"encode": ()}, (1, 1)), ("label", {"label": ()}, (3, 7))]
)
def test_each_number_of_texts_is_run_once(route, inputs, lengths):
    """With the lengths that the export names; a Transformer-XL scores short texts at one length."""
    texts = Texts(route)
    words = () if route == "score" else lengths
    model = types.SimpleNamespace(routes=[f"/{route}"], words=words, kind=types.SimpleNamespace(inputs=inputs))
    for one in each_length(model, texts, most=8):
        asyncio.run(one())
    found = [(len(request["texts"]), len(request["texts"][0].split())) for request in texts.asked]
    assert found == [(rows, words) for rows in (1, 2, 4, 8) for words in dict.fromkeys(lengths)]


def test_programs_that_can_wait_begin_when_nobody_has_asked_for_a_while(monkeypatch):
    """Not while a request is answered, nor right after it: its client may ask again."""
    monkeypatch.setattr(service, "QUIET_SECONDS", 0.4)
    began = []

    async def program():
        began.append(time.monotonic())

    async def serve():
        admission = Admission(4, 4, 1)
        waits = types.SimpleNamespace(admission=admission, _left=collections.deque([program, program]))
        waits._run_next = lambda: waits._left.popleft()()
        work = asyncio.create_task(service.Service.warm_up_later(waits))
        for _ in range(3):
            await asyncio.sleep(0.2)
            async with admission.request():
                await asyncio.sleep(0.2)
        last = time.monotonic()
        await work
        return last

    last = asyncio.run(serve())
    assert len(began) == 2 and last + 0.39 < began[0] <= began[1] < began[0] + 0.2


def test_one_slow_call_does_not_make_calls_smaller():
    """It may be a compilation; the second of its size is not."""
    pace = Pace(0.25, first=8, most=8)
    pace.learn("long", 8, 5.0)
    assert pace["long"] == 8
    pace.learn("long", 8, 2.0)
    assert pace["long"] == 2
    pace.learn("long", 2, 0.1)
    assert pace["long"] == 4
