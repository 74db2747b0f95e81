"""What a run was made with: noted when it changes, and the code known by its content."""

import tomllib
from pathlib import Path

import labcore
from labcore.runs import versions
from labcore.runs.files.paths import run_folder
from labcore.workers.worker import drive
from tests.runs import fake


def test_versions_are_noted_once_and_again_when_they_change(monkeypatch, store):
    run_id = store.create(fake.grpo(5))
    drive(store, run_id, start=fake.start)
    [told] = versions.noted(run_folder(run_id))
    assert told["from"] == 0 and told["lab"] and len(told["code"]) == 12
    versions.note(run_folder(run_id), 3, None)
    assert versions.noted(run_folder(run_id)) == [told]
    monkeypatch.setattr(versions, "here", lambda device=None: {"torch": "99"})
    versions.note(run_folder(run_id), 4, None)
    assert versions.noted(run_folder(run_id)) == [told, {"from": 4, "torch": "99"}]


def test_the_labs_version_is_the_packages():
    project = tomllib.loads((Path(labcore.__file__).parents[1] / "pyproject.toml").read_text())
    assert versions.here()["lab"] == labcore.__version__ and "version" in project["project"]["dynamic"]
    assert Path(project["tool"]["hatch"]["version"]["path"]) == Path("labcore/__init__.py")


def test_the_code_is_known_by_its_content(tmp_path, monkeypatch):
    root = tmp_path / "labcore"
    (root / "maths").mkdir(parents=True)
    (root / "__init__.py").write_text("")
    (root / "maths" / "kl.py").write_text("a = 1\n")
    monkeypatch.setattr(versions.labcore, "__file__", str(root / "__init__.py"))
    codes = []
    for text in ("a = 1\n", "a = 2\n", "a = 1\n"):
        (root / "maths" / "kl.py").write_text(text)
        versions.code.cache_clear()
        codes.append(versions.code())
    versions.code.cache_clear()
    assert codes[0] == codes[2] != codes[1]


def test_the_code_that_the_numbers_depend_on_is_there():
    """A room that is renamed must not fall out of the digest: its changes would go unseen in a replay."""
    root = Path(labcore.__file__).parent
    without = {"analysis", "api", "bases", "cli", "exports", "watch"}  # they look at runs
    rooms = {path.name for path in root.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert {*versions._ENGINE} == rooms - without
