"""Models of Hugging Face's Hub by their names."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from txl_tf.errors import InputError
from txl_tf.published.huggingface import files
from txl_tf.published.layout import naming_source
from txl_tf.storage import hub

if TYPE_CHECKING:
    from huggingface_hub.utils import HfUri

_NAME = re.compile(r"([\w.-]+)/[\w.-]+(@.+)?")
_OLD_NAMES = {
    "xlnet-base-cased": "xlnet/xlnet-base-cased",
    "xlnet-large-cased": "xlnet/xlnet-large-cased",
    "transfo-xl-wt103": "transfo-xl/transfo-xl-wt103",
}
"""Names from before models had owners."""


def found(path: str) -> HfUri | None:
    """The model that a name means in the Hub, with its present commit as revision; None: it is a path.

    OWNER/NAME[@REVISION] is a name if there is neither such a path nor a folder OWNER. So a mistyped path asks
    nobody. hf://OWNER/NAME[@REVISION] is always a name. InputError as `storage.hub.resolve`, or for a data set.
    """
    given = path.removeprefix(hub.PREFIX)
    name, at, revision = given.partition("@")
    body = _OLD_NAMES.get(name, name) + at + revision
    is_bare = given == path
    parts = _NAME.fullmatch(body)
    is_name = name in _OLD_NAMES or (parts and not os.path.isdir(parts[1]))
    if is_bare and (os.path.lexists(path) or not is_name):
        return None
    place = hub.parse(hub.PREFIX + body)
    if place.type != "model" or place.path_in_repo:
        raise InputError(f"{path} is not a model: give hf://OWNER/NAME, if need be with @REVISION")
    try:
        return hub.resolve(place)
    except InputError as error:
        raise InputError(f"no folder {path}; {error}" if is_bare else str(error)) from error


def address(place: HfUri) -> str:
    """hf://OWNER/NAME@COMMIT."""
    return f"{hub.PREFIX}{place.id}@{place.revision}"


def fetch(place: HfUri) -> str:
    """The local folder with those files of a model that are read.

    InputError as `storage.hub.fetch`, or if it is a model of another kind, or lacks config.json or weights.
    """
    where = address(place)
    folder = hub.fetch(place, lambda names: files.needed(names, where)[:1])
    with naming_source(where, folder):
        files.model_type(folder)  # before weights of hundreds of megabytes
    return hub.fetch(place, lambda names: files.needed(names, where))
