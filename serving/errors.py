"""Errors that refuse a request, or the start of the server."""

import math
import re

_OPENAI = re.compile("/v1/(?!models/[^/]+[:/])|/(tokenize|detokenize|tokenizer_info)$")
"""The beginnings of the paths whose errors have OpenAI's form."""


class StartError(Exception):
    """Why the server cannot start, in one line."""


class RequestError(Exception):
    """Why a request is refused, in one line, with its HTTP status.

    Args:
        status: 4xx or 503.
        reason: for the client. It may show what was sent, so it must not be logged.
        headers: of the answer.
        retry_seconds: when the client may try again, in seconds, if that can help.
        param: the field that is wrong, if it is one.
    """

    def __init__(self, status, reason, headers=None, retry_seconds=None, param=None):
        super().__init__(reason)
        self.status, self.param = status, param
        self.headers = dict(headers or {})
        if retry_seconds is not None:
            self.headers["Retry-After"] = str(math.ceil(retry_seconds))


def error_body(path, error):
    """The JSON of the answer to a request that a RequestError refuses, in the form of its path's protocol."""
    if not _OPENAI.match(path):
        return {"error": str(error)}
    kind, code = "invalid_request_error" if error.status < 500 else "server_error", None
    if error.status == 401:
        kind, code = "authentication_error", "invalid_api_key"
    elif (error.status, error.param) == (404, "model"):
        code = "model_not_found"
    return {"error": {"message": str(error), "type": kind, "param": error.param, "code": code}}


def stopping():
    """The RequestError of requests that the server no longer answers."""
    return RequestError(503, "the server is stopping", retry_seconds=5)


def older_export(key):
    """The RequestError for a model that was exported without what this key of a request needs."""
    return RequestError(400, f"this model was exported without the outputs for {key}: export it again")


def one_line(error, length=300):
    """An exception's message in one line, cut to `length` characters; its type if it has none."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= length else text[:length] + ".."
