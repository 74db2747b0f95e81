"""The object store that `RL_LAB_ARTIFACTS` names: a thin layer over fsspec. Objects have names with slashes.

A bucket writes an object as a whole. In a shared folder it is written under another name and then renamed, below a root
that is never made here: where a disk is not mounted, its folder is there and empty. So a store holds a marker. A home
that has once seen the marker of a store and finds it missing treats the store as gone.

fsspec, and the package that it needs for a bucket, are loaded when a store is first opened; never if no store is set.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

from labcore.errors import LabError, first_line, os_reason, quoted
from labcore.runs.files import atomic
from labcore.runs.files.artifacts.units import safe
from labcore.runs.files.paths import check_writable, home
from labcore.runs.files.storage import VARIABLE, Away, Item, Result, chosen, shown

PACKAGES = {"s3": "s3fs", "gs": "gcsfs"}  # scheme -> the package that fsspec needs for it
MARKER, FORMAT = "rl-lab.json", 1
SMALL = 64 * 2**20  # bytes of an object that is read as a whole
_CONNECT_SECONDS, _READ_SECONDS, _TRIES = 5, 60, 2
_LOGIN = ("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError", "RefreshError",
          "TokenRetrievalError", "ProfileNotFound", "PermissionError", "InvalidAccessKeyId", "SignatureDoesNotMatch")
AT_ONCE = 8  # objects that are sent or fetched beside each other


def missing_package(url: str) -> str | None:
    """The package that this machine lacks for a store at `url`; None where it has it, or none is needed.

    >>> missing_package("file:///mnt/lab")
    """
    package = PACKAGES.get(url.partition("://")[0])
    return package if package and find_spec(package) is None else None


def lacks() -> str:
    """See `storage.lacks`."""
    package = missing_package(chosen())
    return f"{package}, which {VARIABLE} ({shown(chosen())}) needs" if package else ""


def opened() -> ObjectStore:
    """The store of this process. Raises LabError where the setting cannot be used."""
    return _opened(chosen(), os.getpid())


def check() -> None:
    """Ask the object store whether it can be used. Raises LabError if it cannot."""
    opened().begin()


@cache
def _opened(url: str, pid: int) -> ObjectStore:  # a connection does not outlive a fork
    return ObjectStore(url)


class ObjectStore:
    """The store at `url`. All its errors are LabErrors; `Away` means that a later attempt may succeed. Raises LabError
    if the URL is not one of a storage that the lab can use, or the package for it is missing."""

    def __init__(self, url: str):
        self.url = shown(url)
        scheme, _, rest = url.partition("://")
        if not rest or scheme not in ("file", *PACKAGES):
            raise LabError(f"{VARIABLE} is not a place for artifacts: set it to s3://BUCKET/FOLDER, gs://BUCKET/FOLDER "
                           "or file:///FOLDER, or leave it unset.")
        if scheme != "file" and set(rest) & {*"@?#"}:
            raise LabError(f"{VARIABLE} holds more than a place: leave keys and options out of it, since others see "
                           "it, and give them as the client of that storage reads them (AWS_ACCESS_KEY_ID, "
                           "GOOGLE_APPLICATION_CREDENTIALS).")
        self._folder = scheme == "file"
        if self._folder and not rest.startswith("/"):
            raise LabError(f"{VARIABLE} is {self.url}, which is no absolute path: write file:/// and the whole path of "
                           "the folder.")
        self._root = rest.rstrip("/")
        self._id: str | None = None
        if package := missing_package(url):
            raise LabError(f"{VARIABLE} names {scheme}://, for which {package} is needed: pip install -r "
                           "requirements-cluster.txt, or use file:///FOLDER.")
        self._files = _file_system(scheme)

    def begin(self) -> str:
        """The id of the store. If the store is empty, the lab first writes its marker into it. Raises LabError if the
        store is gone, cannot be reached or written, or is not the lab's."""
        if self._id is None:
            found = self._marker()
            if found is None:
                if self.url in _noted():
                    raise self._gone()
                check_writable()
                self._check_root()
                self._asked(lambda: self._put(MARKER, lambda path: self._files.pipe_file(path, json.dumps(
                    {"format": FORMAT, "id": uuid4().hex}).encode())))
                found = self._marker()
            if found is None:
                raise self._gone()
            _note(self.url, found)
            self._id = found
        return self._id

    def _marker(self) -> str | None:
        content = self._asked(lambda: self._read(MARKER))
        if content is None:
            return None
        try:
            fields = json.loads(content)
            if fields["format"] != FORMAT:
                raise ValueError("another format")
            return str(fields["id"])
        except (ValueError, TypeError, KeyError) as error:
            raise LabError(f"The file {MARKER} in {self.url} has an unknown format: set {VARIABLE} to another "
                           "place, or update the lab.") from error

    def _check_root(self) -> None:
        """Check that the folder or the bucket is there: neither is made here."""
        root = self._root if self._folder else self._root.partition("/")[0]
        try:
            there = self._files.isdir(root) if self._folder else bool(self._files.exists(root))
        except Exception as error:
            raise self._fault(error) from error
        if not there:
            what = "folder" if self._folder else "bucket"
            raise Away(f"There is no {what} {root}, which {VARIABLE} names: make or mount it, or correct the setting.")

    # ---------------------------------------------------------------- objects

    def get(self, name: str) -> bytes | None:
        """The content of a small object; None where there is none."""
        self._present()
        return self._asked(lambda: self._read(name))

    def fetch(self, name: str, target: Path) -> bool:
        """Copy an object into the file `target`. False where there is none. Raises OSError where this disk is full."""
        self._present()
        try:
            self._asked(lambda: self._files.get_file(self._path(name), str(target)), missing=True)
        except FileNotFoundError:
            if not target.parent.is_dir():
                raise
            return False
        except Away as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT):
                raise error.__cause__ from None
            raise
        return True

    def put(self, name: str, content: bytes) -> None:
        """Make or replace a small object."""
        self._present()
        self._asked(lambda: self._put(name, lambda path: self._files.pipe_file(path, content)))

    def put_file(self, name: str, source: Path) -> None:
        """Make or replace an object with the content of a file. Raises FileNotFoundError where that is gone."""
        self._present()
        try:
            self._asked(lambda: self._put(name, lambda path: self._files.put_file(str(source), path)), missing=True)
        except FileNotFoundError as error:
            if not source.exists():
                raise
            raise self._fault(error) from error

    def copy(self, source: str, target: str) -> None:
        """Make an object of the content of another one, within the store."""
        self._present()
        self._asked(lambda: self._put(target, lambda path: self._files.cp_file(self._path(source), path)))

    def names(self, folder: str) -> dict[str, int]:
        """The objects below a folder, without its name, and their bytes."""
        self._present()
        base = self._path(folder)

        def listed() -> dict[str, int]:
            self._files.invalidate_cache()
            found = self._files.find(base, detail=True)
            return {name[len(base) + 1:]: int(info["size"] or 0) for name, info in found.items()}

        try:
            return self._asked(listed, missing=True)
        except FileNotFoundError:
            return {}

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that are not there count as deleted."""
        self._present()
        for name in names:
            try:
                self._asked(partial(self._files.rm_file, self._path(name)), missing=True)
            except FileNotFoundError:
                continue

    def delete_folder(self, folder: str, first: str = "") -> None:
        """Delete all objects below a folder, beginning with the one called `first`."""
        found = self.names(folder)
        self.delete(f"{folder}/{name}" for name in sorted(found, key=lambda name: (not name.endswith(first), name)))
        if self._folder:
            self._asked(lambda: self._remove_folders(self._path(folder)))

    # ---------------------------------------------------------------- how

    def _path(self, name: str) -> str:
        if not safe(name):
            raise LabError(f"{quoted(name)} is not a valid name in the store {self.url}: nothing is read, "
                           "written or deleted there.")
        return f"{self._root}/{name}"

    def _read(self, name: str) -> bytes | None:
        try:
            with self._files.open(self._path(name), "rb") as file:
                content: bytes = file.read(SMALL)
            return content
        except FileNotFoundError:
            return None

    def _put(self, name: str, write: Callable[[str], object]) -> None:
        path = self._path(name)
        if not self._folder:
            write(path)
            return
        self._make_folders(name)
        unfinished = f"{path.rpartition('/')[0]}/.{uuid4().hex}.part"
        try:
            write(unfinished)
            os.replace(unfinished, path)
        except BaseException:
            Path(unfinished).unlink(missing_ok=True)
            raise

    def _make_folders(self, name: str) -> None:
        """The folders of an object, but never the root: what is not mounted must not be made again beneath."""
        folder = Path(self._root)
        for part in name.split("/")[:-1]:
            folder /= part
            try:
                folder.mkdir()
            except FileExistsError:
                continue

    def _remove_folders(self, path: str) -> None:
        for folder, _, files in os.walk(path, topdown=False):
            for name in files:
                if name.endswith(".part"):  # of a writer that was killed
                    Path(folder, name).unlink(missing_ok=True)
            if not os.listdir(folder):
                os.rmdir(folder)

    def _present(self) -> None:
        """Check that the store is the same one: a folder may have been unmounted since."""
        self.begin()
        if self._folder and not self._asked(Path(self._path(MARKER)).exists):
            raise self._gone()

    def _gone(self) -> Away:
        return Away(f"The store {self.url} is not there (its {MARKER} is missing): mount or restore it; to begin a new "
                    f"one, delete {_notes()}.")

    def _asked(self, ask: Callable[[], Result], missing: bool = False) -> Result:
        """The store's answer; every fault of it as a LabError; with `missing` but for FileNotFoundError."""
        try:
            return ask()
        except FileNotFoundError as error:
            if missing:
                raise
            raise self._fault(error) from error
        except LabError:
            raise
        except Exception as error:  # each client has its own errors, from OSError to those of HTTP
            raise self._fault(error) from error

    def _fault(self, error: Exception) -> LabError:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if isinstance(error, OSError) and self._folder:
            return Away(f"The folder {self.url} cannot be read or written ({os_reason(error)}): check that its "
                        "disk is mounted and has room, and its permissions.")
        if kinds & {*_LOGIN} or any(word in str(error) for word in _LOGIN):
            return Away(f"The store {self.url} refuses the login: check its credentials on this machine (for s3 "
                        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or ~/.aws, for gs "
                        "GOOGLE_APPLICATION_CREDENTIALS), and what they may do.")
        if isinstance(error, FileNotFoundError):
            return Away(f"There is no bucket of that name at {self.url}: make it, or correct {VARIABLE}.")
        return Away(f"The store {self.url} cannot be reached ({first_line(error)}): check the network and its server.")


def each(do: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The results of `do` for each, several at once: a bucket takes longer to answer than to send a small object."""
    wanted = list(items)
    if len(wanted) < 2:
        return [do(item) for item in wanted]
    with ThreadPoolExecutor(min(AT_ONCE, len(wanted))) as pool:
        return list(pool.map(do, wanted))


def _file_system(scheme: str) -> Any:
    import fsspec

    given: dict[str, Any] = {}
    if scheme == "s3":
        given = {"config_kwargs": {"connect_timeout": _CONNECT_SECONDS, "read_timeout": _READ_SECONDS,
                                   "retries": {"total_max_attempts": _TRIES, "mode": "standard"}}}
    return fsspec.filesystem(scheme, use_listings_cache=False, **given)


def _notes() -> Path:
    return home() / ".artifacts" / "stores.json"


def _noted() -> dict[str, str]:
    try:
        found = json.loads(_notes().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:  # damaged: at worst an empty store is begun
        return {}
    return found if isinstance(found, dict) else {}


def _note(url: str, store_id: str) -> None:
    noted = _noted()
    if noted.get(url) != store_id:
        atomic.write_text(_notes(), json.dumps({**noted, url: store_id}))
