"""The first calls of a server, with requests of its own, so that those of clients need not wait for compilation."""

import contextlib
import functools

from serving.errors import RequestError
from serving.metrics import Record

ALL_AT_ONCE = ("/encode", "/classify", "/label", "/regress", "/choose", "/tag", "/answer")
"""The routes that compute a text in one call, at the smallest length that the text fits."""


def each_route(model, texts):
    """Functions that compute a text for every route of a Texts, and its options."""
    return [
        functools.partial(_ask, texts, answer, route, request)
        for route, (answer, requests) in _examples(model, texts).items()
        for request in requests
    ]


def each_length(model, texts, most):
    """Functions that compute 1, 2, 4, .. texts, up to `most`, of each length that the model is traced for.

    A Transformer-XL scores texts of one length together; longer ones are read alone.
    """
    functions, rows = [], 1
    lengths = {"/score": (1,)} if "encode" in model.kind.inputs else dict.fromkeys(ALL_AT_ONCE, model.words)
    routes = {route: found for route, found in _examples(model, texts).items() if route in lengths}
    while rows <= most:
        for route, (answer, (request, *_)) in routes.items():
            for words in lengths[route]:
                columns = request | {next(iter(request)): [" ".join(["a"] * words)]}
                columns = {name: column * rows for name, column in columns.items()}
                functions.append(functools.partial(_ask, texts, answer, route, columns))
        rows *= 2
    return functions


def _examples(model, texts):
    """By route of the model, the function that answers, and requests; the first field is the text."""
    pairs = {"texts": ["a"], "second": ["b"]}
    scored = ({}, {"pieces": True}, {"top": 1}, {"memory": False})
    orders = ("left_to_right", "right_to_left", "confident")
    ranked = {"texts": ["a ____"], "candidates": ["a"]}
    sent = {
        "/score": (texts.score, [{"texts": ["a"]} | way for way in scored]),
        "/fill": (texts.fill, [*({"texts": ["a ____"], "order": order} for order in orders), ranked]),
        "/encode": (texts.encode, [pairs, pairs | {"per_token": True}]),
        "/classify": (texts.classify, [pairs]),
        "/label": (texts.label, [pairs]),
        "/regress": (texts.regress, [pairs]),
        "/choose": (texts.choose, [{"articles": ["a"], "questions": ["a"], "options": [["a", "b"]]}]),
        "/tag": (texts.tag, [{"texts": ["a"]}]),
        "/answer": (texts.answer, [{"contexts": ["a"], "questions": ["a"]}]),
    }
    return {route: sent[route] for route in model.routes if route in sent}


async def _ask(texts, answer, route, request):
    with contextlib.suppress(RequestError):  # such as of a model without pairs, or without an option of the route
        await answer(request, Record(route, "POST"))
    for pace in texts.paces:
        pace.forget()  # it timed a compilation
