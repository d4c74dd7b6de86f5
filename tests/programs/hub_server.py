"""A server that answers as Hugging Face's Hub does, with repositories that a test makes.

    with hub_server.running() as hub:
        commit = hub.add("owner/name", {"config.json": b"{}"})
        hub.used_here(monkeypatch, tmp_path)     # by huggingface_hub in this process, and in those that it starts

It answers /api/[models|datasets]/NAME/revision/REV and [/datasets]/NAME/resolve/REV/FILE, with HEAD, Range and the
Hub's error codes. The real huggingface_hub asks it.
"""

import contextlib
import dataclasses
import hashlib
import http.server
import json
import re
import threading
import urllib.parse

TOKEN = "hf_right"


@dataclasses.dataclass
class Repository:
    """Files by commit, commits by branch or tag; `access` is public, private or gated."""

    access: str = "public"
    commits: dict = dataclasses.field(default_factory=dict)
    revisions: dict = dataclasses.field(default_factory=dict)


class Hub:
    """What the server holds.

    Attributes:
        address: http://127.0.0.1:PORT.
        asked: "METHOD PATH" of every request, and its Range if it has one.
        cut: a file is cut off after so many bytes, once; None: it is not.
    """

    def __init__(self, address):
        self.address, self.asked, self.cut = address, [], None
        self.repositories = {}

    def add(self, name, files, revision="main", kind="models", access="public"):
        """Adds a commit with these files, {path: bytes}, to a repository; returns the commit."""
        repository = self.repositories.setdefault((kind, name), Repository())
        marks = [f"{path} {hashlib.sha1(content).hexdigest()}\n" for path, content in sorted(files.items())]
        commit = hashlib.sha1("".join([*marks, f"{len(repository.commits)} {name}"]).encode()).hexdigest()
        repository.access = access
        repository.commits[commit] = dict(files)
        repository.revisions[revision] = commit
        return commit

    def add_folder(self, name, folder, **how):
        """Adds a commit with the files of a folder, a pathlib.Path."""
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        return self.add(name, files, **how)

    def files(self, name, revision="main", kind="models"):
        """The files of a commit."""
        repository = self.repositories[kind, name]
        return repository.commits[repository.revisions[revision]]

    def environment(self, home):
        """The environment variables with which huggingface_hub asks this server and keeps its files in `home`."""
        return {"HF_ENDPOINT": self.address, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}

    def used_here(self, monkeypatch, home, **more):
        """Sets the environment, also for a huggingface_hub that has read it already; more: HF_TOKEN and the like."""
        from huggingface_hub import constants

        for name, value in (self.environment(home) | more).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(constants, "ENDPOINT", self.address)
        template = self.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", f"{home}/hub")
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", f"{home}/token")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", "HF_HUB_OFFLINE" in more)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub = None

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self._answer()

    def do_GET(self):
        self._answer()

    def _answer(self):
        path = urllib.parse.unquote(self.path.partition("?")[0])
        asked = f"{self.command} {path} {self.headers.get('Range') or ''}".rstrip()
        if "/revision/" in path or "/resolve/" in path:  # the library asks for other things, too
            self.hub.asked.append(asked)
        if found := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            self._about(*found.groups())
        elif found := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/(refs/\w+/\w+|[^/]+)/(.+)", path):
            datasets, *parts = found.groups()
            self._file("datasets" if datasets else "models", *parts)
        else:
            self._send(404, b"Not Found")

    def _about(self, kind, name, revision):
        if (found := self._found(kind, name, revision or "main")) is not None:
            commit, files = found
            about = {"_id": "1", "id": name, "sha": commit, "siblings": [{"rfilename": path} for path in files]}
            self._send(200, json.dumps(about).encode(), {"Content-Type": "application/json"})

    def _file(self, kind, name, revision, path):
        if (found := self._found(kind, name, revision)) is None:
            return None
        commit, files = found
        if path not in files:
            return self._refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
        content = files[path]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha1(content).hexdigest()}"', "Accept-Ranges": "bytes"}
        status, begin, size = 200, 0, len(content)
        if asked := re.fullmatch(r"bytes=(\d+)-\d*", self.headers.get("Range") or ""):
            status, begin = 206, int(asked[1])
            headers["Content-Range"] = f"bytes {begin}-{size - 1}/{size}"
        return self._send(status, content[begin:], headers)

    def _found(self, kind, name, revision):
        """The commit and its files; None after a refusal, as the Hub writes it."""
        repository, token = self.hub.repositories.get((kind, name)), self.headers.get("Authorization")
        allowed = token == f"Bearer {TOKEN}"
        if token and not allowed:
            return self._refuse(401, None, "Invalid credentials in Authorization header")
        if repository is None or (repository.access == "private" and not allowed):
            if allowed:
                return self._refuse(404, "RepoNotFound", "Repository not found")
            return self._refuse(401, None, "Invalid username or password.")
        if repository.access == "gated" and not allowed:
            return self._refuse(401, "GatedRepo", f"Access to model {name} is restricted.")
        commit = repository.revisions.get(revision, revision)
        if commit not in repository.commits:
            return self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit, repository.commits[commit]

    def _refuse(self, status, code, message, headers=None):
        named = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {}) | (headers or {})
        self._send(status, json.dumps({"error": message}).encode(), named)

    def _send(self, status, body, headers=None):
        self.send_response(status)
        for name, value in ({"Content-Length": len(body), "Connection": "close"} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            cut, self.hub.cut = (self.hub.cut, None) if "ETag" in (headers or {}) else (None, self.hub.cut)
            self.wfile.write(body[:cut])


@contextlib.contextmanager
def running():
    """A Hub that answers while the block runs."""
    handler = type("Handler", (_Handler,), {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        handler.hub = Hub(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield handler.hub
        server.shutdown()
        thread.join()
