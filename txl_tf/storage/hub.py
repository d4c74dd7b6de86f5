"""Files of Hugging Face's Hub, fetched into its library's own cache, or found there when the Hub cannot be reached."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from txl_tf.errors import InputError, one_line

if TYPE_CHECKING:
    from huggingface_hub.utils import HfUri

PREFIX = "hf://"


def parse(address: str) -> HfUri:
    """The parts of `hf://[datasets/]OWNER/NAME[@REVISION][/PATH]`: type, id, revision, path_in_repo; or InputError."""
    from huggingface_hub.errors import HfUriError
    from huggingface_hub.utils import parse_hf_uri

    try:
        found = parse_hf_uri(address)
    except HfUriError as error:
        raise InputError(f"{address} is not an address of the Hub ({one_line(error.msg)})") from error
    if found.type not in ("model", "dataset"):
        raise InputError(f"{address} is a {found.type} of the Hub: give a model or, as hf://datasets/.., a data set")
    return found


def resolve(place: HfUri) -> HfUri:
    """`place` with its present commit as revision; without a network, the one that its last use found.

    InputError if there is no such repository or revision, it is private, or the Hub is out of reach and was never asked
    for it.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.utils import logging

    logging.disable_propagation()  # or absl repeats what the library says
    with _in_one_line(place):
        found = HfApi().resolve_revision(place.id, repo_type=place.type, revision=place.revision or "main")
    return dataclasses.replace(place, revision=found.resolved)


def fetch(place: HfUri, choose: Callable[[list[str]], Sequence[str]]) -> str:
    """A local folder, named by the commit, with those files of a repository that `choose` picks from the paths of all.

    It may hold others, too. Files that an earlier use has fetched are not fetched again, and a broken download goes on.
    InputError as `resolve`, or if a file cannot be fetched or written.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    place = resolve(place)
    repository = repo_folder_name(repo_id=place.id, repo_type=place.type)
    folder = os.path.join(HF_HUB_CACHE, repository, "snapshots", str(place.revision))
    with _in_one_line(place):
        for name in choose(_listed(place, folder)):
            hf_hub_download(place.id, name, repo_type=place.type, revision=place.revision)
    return folder


def _listed(place: HfUri, folder: str) -> list[str]:
    """The paths of all files of a repository at a commit; if the Hub is out of reach, of those in its cache."""
    import httpx2
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        found = HfApi().repo_info(place.id, repo_type=place.type, revision=place.revision)
        return [one.rfilename for one in getattr(found, "siblings", None) or ()]
    except (httpx2.TransportError, OfflineModeIsEnabled, HfHubHTTPError) as error:
        if not os.path.isdir(folder) or (isinstance(error, HfHubHTTPError) and error.response.status_code < 500):
            raise
    paths = pathlib.Path(folder).rglob("*")
    return [path.relative_to(folder).as_posix() for path in paths if not path.is_dir()]


@contextlib.contextmanager
def _in_one_line(place: HfUri) -> Iterator[None]:
    import httpx2
    from huggingface_hub import errors

    try:
        yield
    except (errors.HfHubHTTPError, errors.RevisionResolutionError, httpx2.TransportError, OSError) as error:
        raise InputError(_reason(error, place)) from error


def _reason(error: Exception, place: HfUri) -> str:
    import httpx2
    from huggingface_hub import errors
    from huggingface_hub.constants import ENDPOINT, HF_HUB_CACHE

    what = f"{place.type if place.type == 'model' else 'data set'} {place.id}"
    away = errors.RevisionResolutionError, errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError
    if isinstance(error, errors.GatedRepoError):
        asked = f"ask at {ENDPOINT}/{place.id}, then set HF_TOKEN"
        return f"the Hub gives the {what} only to those who asked for access: {asked}"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"the Hub's {what} has no revision {place.revision}: give a branch, tag or commit"
    if isinstance(error, (*away, httpx2.TransportError)):
        cause = error.__cause__ or error
        reason = "HF_HUB_OFFLINE is set" if isinstance(cause, errors.OfflineModeIsEnabled) else one_line(cause)
        return f"the {what} is not whole in {HF_HUB_CACHE}, and the Hub is out of reach ({reason})"
    if isinstance(error, errors.HfHubHTTPError):
        # Without a token the Hub answers 401 for what is not there, too. The library knows that only at https://.
        unknown = isinstance(error, errors.RepositoryNotFoundError) or error.response.status_code == 401
        if unknown and "Invalid credentials" not in str(error):
            return f"the Hub has no {what}, or it is private: correct the name, or set HF_TOKEN to one that may read it"
    elif isinstance(error, OSError) and error.errno is not None:
        return f"the {what} cannot be kept in {HF_HUB_CACHE} ({error.strerror}): make room, or set another HF_HOME"
    return f"the {what} cannot be fetched ({one_line(error)})"  # or of another size than the Hub says, and the like
