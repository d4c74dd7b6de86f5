"""Files of the Hub, asked for by the real huggingface_hub, of a small server."""

import errno
import os
import pathlib
import subprocess
import sys

import hub_server
import pytest

from txl_tf.errors import InputError
from txl_tf.storage import hub

FILES = {"config.json": b"{}", "data/train-00000.parquet": bytes(range(256)) * 40, "data/test.parquet": b"test"}


@pytest.fixture(scope="module")
def server():
    with hub_server.running() as found:
        yield found


@pytest.fixture
def home(server, monkeypatch, tmp_path):
    server.used_here(monkeypatch, tmp_path / "home")
    server.asked.clear()
    return tmp_path / "home"


def everything(names):
    return names


def test_addresses():
    found = hub.parse("hf://datasets/Salesforce/wikitext@refs/convert/parquet/wikitext-2-v1/test")
    parts = found.type, found.id, found.revision, found.path_in_repo
    assert parts == ("dataset", "Salesforce/wikitext", "refs/convert/parquet", "wikitext-2-v1/test")
    assert hub.parse("hf://a/b").type == hub.parse("hf://models/a/b").type == "model"
    for address, fault in [
        ("hf://a", "namespace/name"),
        ("hf://a/b@", "[Rr]evision"),
        ("hf://spaces/a/b", "space of the Hub"),
    ]:
        with pytest.raises(InputError, match=rf"{address} is .*{fault}"):
            hub.parse(address)


@pytest.mark.parametrize("kind", ["models", "datasets"])
def test_the_chosen_files_and_no_others_are_fetched_once(server, home, kind):
    commit = server.add("own/chosen", FILES, kind=kind)
    place = hub.parse(f"hf://{kind}/own/chosen")
    for _ in range(2):
        found = pathlib.Path(hub.fetch(place, lambda names: [name for name in names if name.startswith("data/")]))
        assert found.name == commit
        for name in ("data/test.parquet", "data/train-00000.parquet"):
            assert (found / name).read_bytes() == FILES[name]
    assert not (found / "config.json").exists()
    gets = [line for line in server.asked if line.startswith("GET") and "/resolve/" in line]
    assert len(gets) == 2 and not any("config.json" in line for line in gets)


def test_revisions_are_branches_tags_and_commits(server, home):
    first = server.add("own/moves", {"a": b"1"})
    pinned = hub.resolve(hub.parse("hf://own/moves"))
    second = server.add("own/moves", {"a": b"2"})
    server.add("own/moves", {"a": b"3"}, revision="v3")
    contents = [
        pathlib.Path(hub.fetch(place, everything), "a").read_bytes()
        for place in (
            pinned,
            hub.parse("hf://own/moves"),
            *map(hub.parse, ("hf://own/moves@v3", f"hf://own/moves@{first}")),
        )
    ]
    assert pinned.revision == first != second and contents == [b"1", b"2", b"3", b"1"]


def test_without_the_hub_the_cache_serves(server, home, monkeypatch):
    server.add("own/cached", FILES)
    place = hub.parse("hf://own/cached")
    found = hub.fetch(place, everything)
    with hub_server.running() as other:
        closed = other
    for more, reason in (({}, r"\[Errno 111\]"), ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set")):
        closed.used_here(monkeypatch, home, **more)
        again = hub.fetch(place, everything)
        assert again == found and all(pathlib.Path(again, name).exists() for name in FILES)
        with pytest.raises(InputError, match=rf"own/never is not whole in .*, and the Hub is out of reach \({reason}"):
            hub.fetch(hub.parse("hf://own/never"), everything)
    with pytest.raises(InputError, match=r"own/cached is not whole in .*, and the Hub is out of reach"):
        hub.fetch(place, lambda names: [*names, "another"])


def test_a_broken_download_goes_on(server, home, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 10_000)  # 10 MB, what is lost at most
    server.add("own/long", {"long": os.urandom(300_000)})
    server.cut = 100_000
    found = hub.fetch(hub.parse("hf://own/long"), everything)
    (content,) = server.repositories["models", "own/long"].commits[os.path.basename(found)].values()
    assert pathlib.Path(found, "long").read_bytes() == content
    assert any("bytes=100000-" in line for line in server.asked), server.asked


def test_what_the_hub_refuses_is_one_line(server, home, monkeypatch):
    server.add("own/secret", FILES, access="private")
    server.add("own/gated", FILES, access="gated")
    server.add("own/open", FILES)
    for address, line in {
        "hf://own/none": "the Hub has no model own/none, or it is private: correct the name, or set HF_TOKEN",
        "hf://datasets/own/none": "the Hub has no data set own/none, or it is private",
        "hf://own/secret": "the Hub has no model own/secret, or it is private",
        "hf://own/gated": f"the Hub gives the model own/gated only to those .* {server.address}/own/gated, then",
        "hf://own/open@v9": "the Hub's model own/open has no revision v9: give a branch, tag or commit",
    }.items():
        with pytest.raises(InputError, match=rf"^{line}") as error:
            hub.fetch(hub.parse(address), everything)
        assert "\n" not in str(error.value)
    server.used_here(monkeypatch, home, HF_TOKEN=hub_server.TOKEN)
    for name in ("own/secret", "own/gated"):
        assert pathlib.Path(hub.fetch(hub.parse(f"hf://{name}"), everything), "config.json").exists()
    with pytest.raises(InputError, match=r"^the Hub has no model own/none"):
        hub.fetch(hub.parse("hf://own/none"), everything)
    server.used_here(monkeypatch, home, HF_TOKEN="hf_wrong")
    with pytest.raises(InputError, match=r"^the model own/open cannot be fetched \(.*Invalid credentials"):
        hub.resolve(hub.parse("hf://own/open"))


def test_a_file_of_another_size_than_the_hub_says_is_refused(server, home, monkeypatch):
    from huggingface_hub import file_download

    server.add("own/short", {"a": b"12345"})
    sizes = file_download._int_or_none
    monkeypatch.setattr(file_download, "_int_or_none", lambda text: 9 if text == "5" else sizes(text))
    with pytest.raises(InputError, match=r"^the model own/short cannot be fetched \(Consistency check failed"):
        hub.fetch(hub.parse("hf://own/short"), everything)


def test_a_full_disk_is_one_line_and_leaves_no_half(server, home, monkeypatch):
    from huggingface_hub import file_download

    server.add("own/large", FILES)
    opened = file_download.http_get

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(file_download, "http_get", full)
    with pytest.raises(InputError, match=r"own/large cannot be kept in .* \(No space left on device\): make room"):
        hub.fetch(hub.parse("hf://own/large"), everything)
    monkeypatch.setattr(file_download, "http_get", opened)
    found = hub.fetch(hub.parse("hf://own/large"), everything)
    assert {name: pathlib.Path(found, name).read_bytes() for name in FILES} == FILES


def test_no_tensorflow_is_loaded(server, tmp_path):
    """And a process reads the environment that the library documents."""
    commit = server.add("own/chosen", FILES)
    program = (
        "import sys; from txl_tf.storage import hub;"
        "print(hub.fetch(hub.parse('hf://own/chosen'), sorted)); assert 'tensorflow' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | server.environment(tmp_path / "home"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / f"home/hub/models--own--chosen/snapshots/{commit}")
