"""Methods of a list of texts that take one text, too."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

from txl_tf.storage.surrogates import whole

Options = typing.ParamSpec("Options")
Result = typing.TypeVar("Result")


class _OneOrAll(typing.Protocol[Options, Result]):
    """The method of an object: a text -> a result, a list of texts -> a list of results."""

    @typing.overload
    def __call__(self, texts: str, *args: Options.args, **options: Options.kwargs) -> Result: ...

    @typing.overload
    def __call__(
        self, texts: list[str] | tuple[str, ...], *args: Options.args, **options: Options.kwargs
    ) -> list[Result]: ...


class _Method(typing.Protocol[Options, Result]):
    """The method in its class."""

    def __get__(self, owner: Any, kind: Any = None) -> _OneOrAll[Options, Result]: ...


def one_or_all(
    method: Callable[typing.Concatenate[Any, list[str], Options], list[Result]],
) -> _Method[Options, Result]:
    """A method of a list of texts that also takes one text, and then returns its result alone.

    In the texts U+FFFD stands for half a surrogate pair.
    """
    signature = inspect.signature(method)
    name = list(signature.parameters)[1]

    @functools.wraps(method)
    def call(*args: Any, **options: Any) -> Any:
        bound = signature.bind(*args, **options)
        given = bound.arguments[name]
        single = isinstance(given, str)
        bound.arguments[name] = [whole(text) for text in ([given] if single else given)]
        results = method(*bound.args, **bound.kwargs)
        return results[0] if single else results

    return typing.cast(Any, call)
