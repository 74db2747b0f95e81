"""A Hugging Face hub on this machine: datasets and models by their files, or the answers of one that refuses."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

COMMIT = "0" * 39 + "1"
Repos = Mapping[str, Mapping[str, Mapping[str, bytes]]]  # dataset or model -> revision -> path -> content


class Hub(ThreadingHTTPServer):
    """`refuses`: a status, and the hub's code for it, that every request gets; `gated`: only files are refused;
    `breaks`: bytes after which the sending of a file breaks off. `asked` are the paths asked for, `sent` the bytes of
    files."""

    def __init__(self, repos: Repos, refuses: tuple[int, str] | None = None, gated: bool = False, breaks: int = 0):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos, self.refuses, self.gated, self.breaks = repos, refuses, gated, breaks
        self.asked, self.sent = list[str](), list[tuple[str, int]]()

    def handle_error(self, *_: object) -> None:
        """Nothing on the console: a client that leaves is no error."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        """Nothing on the console."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = urlsplit(self.path).path
        self.server.asked.append(f"{self.command} {unquote(path)}")
        if self.server.refuses:
            self._send(self.server.refuses[0], b"", {"X-Error-Code": self.server.refuses[1]})
        elif path.startswith("/api/datasets/"):
            self._tree(*path.removeprefix("/api/datasets/").split("/")[:4])
        elif path.startswith("/api/models/"):
            org, name, *rest = path.removeprefix("/api/models/").split("/")
            if rest[:1] == ["tree"]:
                self._tree(org, name, "tree", rest[1])
            else:
                self._info(org, name)
        elif self.server.gated:
            self._send(401, b"", {"X-Error-Code": "GatedRepo"})
        else:
            self._file(path.removeprefix("/datasets"))

    def _info(self, org: str, name: str) -> None:
        if f"{org}/{name}" not in self.server.repos:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
            return
        found = json.dumps({"id": f"{org}/{name}", "sha": COMMIT, "siblings": [], "tags": [], "downloads": 0})
        self._send(200, found.encode(), {"Content-Type": "application/json"})

    def _file(self, path: str) -> None:
        _, org, name, _, revision, *rest = path.split("/")
        content = self._files(org, name, revision).get(unquote("/".join(rest)))
        if content is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        whole = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        begins = self.headers.get("Range", "")
        if begins:
            at = int(begins.removeprefix("bytes=").partition("-")[0])
            whole["Content-Range"] = f"bytes {at}-{len(content) - 1}/{len(content)}"
            content = content[at:]
        self._send(206 if begins else 200, content, whole, self.server.breaks)

    def _files(self, org: str, name: str, revision: str) -> Mapping[str, bytes]:
        repo = self.server.repos.get(f"{org}/{name}", {})
        return repo.get("main" if unquote(revision) == COMMIT else unquote(revision), {})

    def _tree(self, org: str, name: str, _: str, revision: str) -> None:
        repo = self.server.repos.get(f"{org}/{name}")
        files = self._files(org, name, revision)
        if not files:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound" if repo is None else "RevisionNotFound"})
            return
        listed = [{"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                  for path, content in files.items()]
        self._send(200, json.dumps(listed).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, content: bytes, headers: Mapping[str, str], breaks: int = 0) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            part = content[:breaks] if breaks else content
            for at in range(0, len(part), 1024):
                self.wfile.write(part[at:at + 1024])
                self.server.sent.append((self.path, len(part[at:at + 1024])))
            self.close_connection = True


def turn_to(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have huggingface_hub ask this hub, and keep what it fetches in `cache`."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE",
                        hub.url + "/{repo_id}/resolve/{revision}/{filename}")


@contextmanager
def serving(repos: Repos, refuses: tuple[int, str] | None = None, **more: Any) -> Iterator[Hub]:
    """A hub that answers until the end of the block."""
    hub = Hub(repos, refuses, **more)
    thread = threading.Thread(target=hub.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
