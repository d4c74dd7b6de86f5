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
    """A method of a list of texts, which need not be whole; for a single text it returns the only result."""
    name = list(inspect.signature(method).parameters)[1]

    @functools.wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        given, *others = args or [options.pop(name)]
        if isinstance(given, str):
            return method(self, [whole(given)], *others, **options)[0]
        return method(self, [whole(text) for text in given], *others, **options)

    return typing.cast(Any, call)
