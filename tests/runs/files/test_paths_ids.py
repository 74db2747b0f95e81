"""An id never leads out of the folder that it is looked up in, whatever it says and whoever is given it."""

import json
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labcore.analysis.lessons import folders
from labcore.cli.main import main
from labcore.errors import LabError
from labcore.exports import folder as exports
from labcore.exports import folder as merged
from labcore.runs import jobs
from labcore.runs.files import bases, uploads
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.artifacts import changes, deletion, fetch, object_store, units
from labcore.runs.files.paths import home, imports, is_id, is_import, is_run_id, named, run_folder
from labcore.runs.imports import imported
from labcore.runs.lists import cleanup, marks
from labcore.runs.spec import model_names
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.store import Store
from labcore.tasks import labels
from tests.every import every
from tests.runs.fake import grpo
from tests.runs.files.made_names import HOSTILE

PARTS = st.sampled_from(["..", ".", "/", "\\", "a", "base", "imported-", "sweep-", "lab.db", "\0", "\n", " ", ":",
                         "%2e", "é", "-", "_", "\ud800", "·", "‥", "／"])
NAMES = st.lists(PARTS, max_size=6).map("".join) | st.text(max_size=20)


@given(NAMES)
def test_an_id_is_one_plain_folder(name):
    folder = Path("/home/lab")
    if is_id(name):
        assert named(name, folder).parent == folder and (folder / name).parts[-1] == name and name[0] not in ".-~"
        assert not set(name) & set("/\\:\0\n \t%*?[]'\"$") and name.encode()
    else:
        with pytest.raises(LabError, match="cannot be an id"):
            named(name, folder)
    assert is_id(name) or not (is_run_id(name) or is_import(name))
    assert not (is_run_id(name) and is_import(name))


@every("name", HOSTILE)
def test_a_hostile_name_is_no_id(name):
    assert not is_id(name) and not is_run_id(name) and not is_import(name)


@pytest.mark.parametrize("name", [3, None, b"a", ("a",)])
def test_what_is_no_text_is_no_id(name):
    assert not is_id(name) and not is_run_id(name) and not is_import(name)


@pytest.mark.parametrize("name", ["base", "Base", "jobs", "uploads", "imported-a", "sweep-1", "lab.db", "mixes.json"])
def test_a_name_of_the_lab_itself_is_no_runs(name):
    assert is_id(name) and not is_run_id(name)


def noted(name: str) -> None:
    """Somebody puts a note into the home that `name` is to be deleted in the object store."""
    note = home() / changes.FOLDER / "forgotten" / quote(name.encode("utf-8", "replace"), safe="")[:255]
    if note.name == quote(name.encode("utf-8", "replace"), safe="")[:255]:  # else no file can be called so
        note.parent.mkdir(parents=True, exist_ok=True)
        note.touch()


# Everything that takes an id and makes a path of it, as pages, commands and workers call it.
ENTRIES = {
    "a run": lambda name: Store().run(name), "a mark": lambda name: Store().mark(name, star=True),
    "the trash": lambda name: marks.trash(Store(), [name]), "restore": lambda name: marks.restore(Store(), [name]),
    "delete": lambda name: marks.delete(Store(), [name]), "the store's delete": lambda name: Store().delete(name),
    "purge": lambda name: Store().purge(0, [name]), "children": lambda name: Store().children(name),
    "a sweep": lambda name: Store().sweep_runs(name), "spare files": cleanup.delete_spare,
    "checkpoints": lambda name: checkpoint.steps(run_folder(name)), "an export": lambda name: exports.export_zip(
        Store(), name), "a merge": lambda name: merged.merge({"run": name, "step": 0}),
    "a job": jobs.outcome, "a job to do": jobs.perform, "a job to forget": jobs.forget, "a failed job": lambda name:
        jobs.fail(name, "no"), "a base": bases.take, "a base there": bases.there, "a model": model_names.model_of_name,
    "a model to check": lambda name: model_names.check(f"{name}@0"), "a reward model": model_names.reward_model_of,
    "an SFT base": lambda name: model_names.model_of_name(f"SFT base {name}"), "an import": imported.load,
    "an import's rows": imported.rows, "an import's label": imported.label, "a base of a run": lambda name:
        model_names.check(f"base:{name}"), "an upload": uploads.file_at, "labels": labels.file_of,
    "a lesson": folders.find, "a fork": lambda name: RunSpec.from_json(json.dumps(json.loads(
        grpo().to_json()) | {"parent": [name, 0]})), "published files": lambda name: fetch.names(name, "samples"),
    "a published run": fetch.bring_run,
    "a deletion there": lambda name: deletion.deleted(home() / name), "a note of a deletion": lambda name: (
        noted(name), deletion.clear(object_store.opened()))[0],
    "an object": lambda name: object_store.opened().get(name), "an object's name": lambda name:
        object_store.opened().put(name, b"x"), "objects": lambda name: object_store.opened().delete_folder(name),
    **{f"command {words[0]}": lambda name, words=words: main([*words, name]) for words in (
        ["delete"], ["delete", "--for-good"], ["mark", "--star"], ["restore"], ["stop"], ["resume"], ["export"],
        ["export", "--capsule"], ["fork"], ["sweeps"], ["lesson"], ["publish"], ["play"])},
}


@pytest.fixture
def neighbours(lab_home, tmp_path, monkeypatch) -> Path:
    """The folder with the lab, its object store and a victim that looks like a run, an import, a base and a job."""
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "lab"))
    monkeypatch.setenv("RL_LAB_ARTIFACTS", f"file://{tmp_path}/shared")
    (tmp_path / "shared").mkdir()
    object_store._opened.cache_clear()
    for place in (tmp_path / "victim", tmp_path / "lab" / "imported" / "mine"):
        for name in ("spec.json", "about.json", "rows.csv", "result.json", "checkpoints/step-000000/policy/x",
                     "checkpoints/step-000005/policy/x", "checkpoints/step-000009/x", "samples/step-000000.json"):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text("{}")
    Store()
    object_store.opened().begin()
    return tmp_path


def outside(folder: Path) -> dict[str, bytes]:
    """The files that must stay: all but the lab's own database and notes, the shipped bases that it unpacks at first
    use, and new objects of the object store."""
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    own, kept = ("lab/lab.db", "lab/.artifacts/", "lab/base/", "shared/"), "shared/rl-lab.json"
    return {name: content for name, content in found.items() if not name.startswith(own) or name == kept}


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_entry_lets_an_id_lead_elsewhere(entry, neighbours, capsys):
    before = outside(neighbours)
    for name in (*HOSTILE, str(neighbours / "victim"), f"{neighbours}/victim/"):
        found = None
        with suppress(LabError, SystemExit):  # refused in a sentence, or by the command line's parser
            found = ENTRIES[entry](name)
        assert not isinstance(found, Path) or not found.exists() or found.is_relative_to(home()), name
    assert outside(neighbours) == before
    assert "Traceback" not in capsys.readouterr().err


def test_things_of_the_object_store_lie_in_the_home(lab_home):
    for name in HOSTILE:
        for path in (home() / name, home() / name / "checkpoints" / "step-000000" / "policy", home() / "base" / name,
                     home() / "a" / ".." / name / "start"):
            for thing in (units.whole_with(path), units.unit_with(path), *(units.loose_with(path) or ())):
                assert thing is None or units.folder(thing).resolve().is_relative_to(home()), (path, thing)


def test_an_import_is_called_as_its_folder_whatever_its_file_says(lab_home):
    run = imported.keep(Store(), "trl.csv", b"step,loss\n1,2\n2,3\n")[0]
    about = imports() / run.id / "about.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {"id": "../../victim"}))
    assert [each.id for each in imported.listed(Store())] == [run.id]
