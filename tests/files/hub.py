"""A Hugging Face hub on this machine: datasets by their files, or the answers of one that refuses."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0" * 39 + "1"
Repos = Mapping[str, Mapping[str, Mapping[str, bytes]]]  # dataset -> revision -> path -> content


class Hub(ThreadingHTTPServer):
    """`refuses`: a status, and the hub's code for it, that every request gets; `asked` are the paths asked for."""

    def __init__(self, repos: Repos, refuses: tuple[int, str] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos, self.refuses, self.asked = repos, refuses, list[str]()

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
        else:
            self._file(path)

    def _file(self, path: str) -> None:
        _, _, org, name, _, revision, *rest = path.split("/")
        content = self.server.repos.get(f"{org}/{name}", {}).get(unquote(revision), {}).get(unquote("/".join(rest)))
        if content is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        else:
            self._send(200, content, {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT})

    def _tree(self, org: str, name: str, _: str, revision: str) -> None:
        repo = self.server.repos.get(f"{org}/{name}")
        files = None if repo is None else repo.get(unquote(revision))
        if files is None:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound" if repo is None else "RevisionNotFound"})
            return
        listed = [{"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                  for path, content in files.items()]
        self._send(200, json.dumps(listed).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@contextmanager
def serving(repos: Repos, refuses: tuple[int, str] | None = None) -> Iterator[Hub]:
    """A hub that answers until the end of the block."""
    hub = Hub(repos, refuses)
    thread = threading.Thread(target=hub.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
