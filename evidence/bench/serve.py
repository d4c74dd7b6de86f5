"""Requests a second of the server, with and without sharing calls of the model, in alternating rounds.

If the model continues texts, also by OpenAI's /v1/completions, beside /generate.

python evidence/bench/serve.py --export_dir=exports/demo --clients=8 --requests=32 --rounds=5
"""

import asyncio
import pathlib
import socket
import statistics
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[2] / "scripts"))
sys.path.append(str(pathlib.Path(__file__).parents[2]))

from absl import flags
from command_line import run
from flag_help import require_flags

from txl_tf.errors import InputError

EXPORT_DIR = flags.DEFINE_string("export_dir", None, "a SavedModel that scripts/export_savedmodel.py wrote")
CLIENTS = flags.DEFINE_integer("clients", 8, "clients that send requests at a time", lower_bound=1)
REQUESTS = flags.DEFINE_integer("requests", 32, "of a round", lower_bound=1)
ROUNDS = flags.DEFINE_integer("rounds", 5, "each with and without shared calls", lower_bound=1)
TOKENS = flags.DEFINE_integer("tokens", 64, "tokens that a Transformer-XL makes for a request", lower_bound=1)
require_flags("export_dir")


def request_of(routes, i):
    """A route and the i-th request for it."""
    text = f"{i} the text of a request, " * 4
    requests = {
        "/encode": {"texts": [text]},
        "/fill": {"texts": [f"{text} ____"]},
        "/classify": {"texts": [text]},
        "/label": {"texts": [text]},
        "/regress": {"texts": [text]},
        "/tag": {"texts": [text]},
        "/choose": {"articles": [text], "questions": ["What?"], "options": [["a", "b"]]},
        "/answer": {"questions": ["What?"], "contexts": [text]},
        "/generate": {"prompts": [text], "max_tokens": TOKENS.value, "seeds": [i]},
    }
    return next((route, sent) for route, sent in requests.items() if route in routes)


def completion(i):
    """The i-th request for /generate as one for /v1/completions, and its route."""
    _, sent = request_of(["/generate"], i)
    return "/v1/completions", {"prompt": sent["prompts"], "max_tokens": sent["max_tokens"], "seed": i}


async def requests_a_second(client, address, request):
    """The requests a second of one round; request(i) -> route and body."""
    waiting = iter(range(REQUESTS.value))

    async def send_on():
        for i in waiting:
            route, sent = request(i)
            async with client.post(address + route, json=sent) as answer:
                if answer.status != 200:
                    raise InputError(f"{route}: {await answer.text()}")

    start = time.monotonic()
    await asyncio.gather(*(send_on() for _ in range(CLIENTS.value)))
    return REQUESTS.value / (time.monotonic() - start)


async def measure():
    """Prints requests a second of each round, and the median ratio."""
    import aiohttp
    import tensorflow_text  # noqa: F401 (its operations are in exports)

    from serving.access import Access
    from serving.errors import StartError
    from serving.running import Running
    from serving.service import Service

    try:
        service = Service(EXPORT_DIR.value)
    except StartError as error:
        raise InputError(str(error)) from None
    ratios, protocols, rows = [], [], service.turns.batch_rows
    routes = service.model.routes

    def request(i):
        return request_of(routes, i)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        running = Running(service, [listening], Access())
        await running.start()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with aiohttp.ClientSession() as client:
            for i in range(-1, ROUNDS.value):  # the first one compiles
                speeds = {}
                for service.turns.batch_rows in (1, rows):
                    speeds[service.turns.batch_rows] = await requests_a_second(client, address, request)
                if i >= 0:
                    ratios.append(speeds[rows] / speeds[1])
                    print(f"round {i + 1}: {speeds[1]:.2f} requests/s each by itself, {speeds[rows]:.2f} shared")
                if request(0)[0] == "/generate":
                    speed = await requests_a_second(client, address, completion)
                    own = await requests_a_second(client, address, request)
                    if i >= 0:
                        protocols.append(speed / (own + speeds[rows]) * 2)  # before and after
        await running.stop()
    print(f"{request(0)[0]}: {statistics.median(ratios):.2f} times as fast with shared calls")
    if protocols:
        print(f"/v1/completions: {statistics.median(protocols):.3f} times as fast as /generate")


def main(argv):
    del argv
    asyncio.run(measure())


if __name__ == "__main__":
    run(main)
