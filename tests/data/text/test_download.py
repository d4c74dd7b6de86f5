"""Downloads, from a real HTTP server on this machine that misbehaves."""

import hashlib
import http.server
import os
import threading

import pytest

from txl_tf.data.text import download
from txl_tf.errors import InputError

CONTENT = os.urandom(300_000)


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT under paths that say how; remembers requests as (path, Range). Stops after 50."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests = []

    def url(self, path):
        return f"http://127.0.0.1:{self.server_address[1]}/{path}/file.zip"


class Handler(http.server.BaseHTTPRequestHandler):
    timeout = 10

    def do_GET(self):
        how, wanted = self.path.split("/")[1], self.headers.get("Range")
        self.server.requests.append((how, wanted))
        if len(self.server.requests) > 50 or how == "missing":
            self.send_error(404)
            return
        if how == "refuses" and "Python" in self.headers.get("User-Agent", "Python"):
            self.send_error(403)
            return
        if how == "busy" and len(self.server.requests) < 3:
            self.send_error(503)
            return
        content = {"wrong": CONTENT[::-1], "short": CONTENT[:-1], "long": CONTENT + b"x"}.get(how, CONTENT)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and how != "whole" else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if how != "unsized":
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = len(content)
        if how in ("cuts", "whole") and len(self.server.requests) < 4:
            end = min(start + 100_000 * len(self.server.requests), end - 1)
        if how == "dies":
            end = start
        self.wfile.write(content[start:end])

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join(5)


def published(*urls):
    return download.PublishedFile(urls, len(CONTENT), "sha256:" + hashlib.sha256(CONTENT).hexdigest())


def fetched(directory, *urls):
    path = download.fetch(published(*urls), str(directory), pause=0.001)
    with open(path, "rb") as file:
        assert file.read() == CONTENT
    assert os.listdir(directory) == ["file.zip"]


@pytest.mark.parametrize("how", ["plain", "unsized", "refuses", "busy"])
def test_plain(server, tmp_path, how):
    fetched(tmp_path, server.url(how))


def test_what_is_there_is_not_fetched_again(server, tmp_path):
    fetched(tmp_path, server.url("plain"))
    fetched(tmp_path, server.url("plain"))
    assert len(server.requests) == 1


def test_a_cut_connection_is_resumed_where_it_was_cut(server, tmp_path):
    fetched(tmp_path, server.url("cuts"))
    assert [wanted for _, wanted in server.requests] == [None, "bytes=100000-", "bytes=299999-", "bytes=299999-"]


def test_a_server_that_always_sends_everything(server, tmp_path):
    fetched(tmp_path, server.url("whole"))


def test_a_killed_download_is_resumed(server, tmp_path):
    (tmp_path / "file.zip.partial").write_bytes(CONTENT[:1234])
    fetched(tmp_path, server.url("plain"))
    assert server.requests == [("plain", "bytes=1234-")]


@pytest.mark.parametrize("how", ["missing", "wrong", "short", "long", "dies"])
def test_the_mirror_serves_where_the_first_address_fails(server, tmp_path, how):
    fetched(tmp_path, server.url(how), server.url("plain"))
    assert len(server.requests) <= 7


def test_when_all_fail_the_file_to_fetch_by_hand_is_named(server, tmp_path):
    with pytest.raises(InputError) as error:
        download.fetch(published(server.url("missing"), server.url("wrong")), str(tmp_path), pause=0.001)
    message = str(error.value)
    assert "404" in message
    assert "not the published file" in message
    assert f"Fetch {server.url('missing')} by hand (300,000 bytes, sha256:" in message
    assert f"put it at {tmp_path / 'file.zip'}, or give it as --source" in message
    assert "\n" not in message
    assert os.listdir(tmp_path) == []


def test_offline(tmp_path):
    with pytest.raises(InputError, match="by hand"):
        download.fetch(published("http://127.0.0.1:9/file.zip"), str(tmp_path), pause=0.001)


def test_a_file_put_there_by_hand_is_checked(tmp_path):
    (tmp_path / "file.zip").write_bytes(CONTENT[:-1])
    with pytest.raises(InputError, match="has 299,999 bytes, the published file 300,000"):
        download.fetch(published("http://127.0.0.1:9/file.zip"), str(tmp_path))
