"""Whatever a disk does not take, nothing half is left of an export, and the sentence says why.

A limit on the size of files stands for the full disk: the system refuses to write on at it, whoever writes.
"""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from labcore.cli.main import main
from labcore.errors import LabError
from labcore.exports.capsules import importing, packing
from labcore.exports.folder import export_run, export_zip
from labcore.runs.files import uploads
from labcore.runs.files.paths import home, run_folder
from labcore.runs.store.store import Store
from tests.every import now
from tests.exports.capsules.tools import faked


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """No file of this process grows above `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def run_id():
    """A run whose checkpoint is a large file, and whose tables are small ones.

    Its store stays open: the first connection to a database makes a file of 32 KiB, which the limit would not allow.
    """
    store = Store()
    run_id = faked(store, 3)
    for policy in run_folder(run_id).glob("checkpoints/*/policy"):
        (policy / "model.safetensors").write_bytes(bytes(300_000))
    yield run_id
    store.dispose()


def there(*folders) -> list[str]:
    return sorted(str(path) for folder in folders for path in folder.rglob("*") if not path.name.startswith("lab.db"))


WRITERS = {
    "folder": lambda run_id, out: export_run(Store(), run_id, out / "new" / "export", tensorboard=True),
    "zip": lambda run_id, out: export_zip(Store(), run_id),
    "capsule": lambda run_id, out: packing.write(Store(), run_id, out / "run.zip"),
    "import": lambda run_id, out: importing.import_capsule(Store(), out.parent / "packed.zip"),
    "upload": lambda run_id, out: uploads.keep("mine.txt", b"abc" * 100_000),
}


@pytest.mark.parametrize("size", now([10, 2000, 100_000], 2000))
@pytest.mark.parametrize("writer", WRITERS)
def test_an_export_is_whole_or_not_there(writer, size, run_id, tmp_path):
    (out := tmp_path / "out").mkdir()
    packing.write(Store(), run_id, tmp_path / "packed.zip")
    (run_folder(run_id) / "export").mkdir(exist_ok=True)
    (home() / "uploads").mkdir(exist_ok=True)
    before = there(out, home())
    with at_most(size), pytest.raises(LabError, match="File too large"):
        WRITERS[writer](run_id, out)
    left = [path for path in there(out, home()) if path not in before]
    assert not left or (writer == "upload" and len(left) == 1)  # the empty folder that is to hold it
    WRITERS[writer](run_id, out)
    assert len(there(out, home())) > len(before)


def test_what_lies_in_the_folder_stays(run_id, tmp_path):
    export_run(Store(), run_id, tmp_path)
    (tmp_path / "mine.txt").write_text("mine")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with at_most(2000), pytest.raises(LabError, match=f"{run_id} cannot be exported to .*File too large"):
        export_run(Store(), run_id, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_script_is_whole_or_not_there(run_id, tmp_path, capsys):
    out = tmp_path / "train.py"
    out.write_text("mine")
    with at_most(10):
        assert main(["export", run_id, "--to", "trl", "--out", str(out)]) == 1
    assert "File too large" in capsys.readouterr().err and out.read_text() == "mine"
    assert main(["export", run_id, "--to", "trl", "--out", "/dev/full"]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert main(["export", run_id, "--to", "trl", "--out", str(out)]) == 0 and "import" in out.read_text()


def test_where_an_export_may_go_nothing_is_made_before_it(run_id, tmp_path, capsys):
    with at_most(2000):
        assert main(["export", run_id, "--out", str(tmp_path / "a" / "b")]) == 1
    assert "cannot be exported" in capsys.readouterr().err and not (tmp_path / "a").exists()
