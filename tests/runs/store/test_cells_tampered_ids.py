"""A store that somebody changed names runs by paths: no folder beside the lab is deleted, read or written for it."""

import time
from pathlib import Path

import pytest

from labcore.cli.main import main
from labcore.errors import LabError
from labcore.runs.lists import cleanup, marks
from labcore.runs.lists.all_runs import Shelf
from labcore.runs.store.schema import events, runs, steps
from labcore.runs.store.schema import marks as marked
from labcore.runs.store.store import Store
from tests.runs.files.made_names import HOSTILE
from tests.runs.lists.tools import ended

NAMES = [name for name in HOSTILE if name != "\ud800"]  # which no database keeps


@pytest.fixture
def victim(tmp_path, monkeypatch) -> Path:
    """A folder beside the lab, as full as a run's."""
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "lab"))
    for name in ("spec.json", "samples/step-000001.json", "export/x.zip", "checkpoints/step-000000/x",
                 "checkpoints/step-000001/x", "checkpoints/step-000002/x"):
        (tmp_path / "victim" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "victim" / name).write_text("precious")
    return tmp_path / "victim"


def files(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in folder.rglob("*") if path.is_file()}


def tampered(name: str, deleted: float | None) -> Store:
    """A store whose one run is called `name`, in the trash since `deleted`."""
    store = Store()
    run_id = ended(store)
    with store._writing() as connection:
        for table, column in ((runs, "id"), (steps, "run_id"), (events, "run_id")):
            connection.execute(table.update().where(table.c[column] == run_id), {column: name})
        connection.execute(marked.insert(), {"id": name, "deleted": deleted})
    return store


@pytest.mark.parametrize("name", [*NAMES, "{victim}", "{victim}/", "imported-/../../../victim"])
def test_a_neighbour_of_the_lab_outlives_every_clean_up(name, victim, capsys):
    before, name = files(victim), name.format(victim=victim)
    tampered(name, time.time() - 30 * 86_400)
    assert main(["runs"]) == 0  # which deletes for good what has been in the trash for a week
    assert files(victim) == before and Store().trashed() == [] and victim.parent.joinpath("lab", "lab.db").is_file()


@pytest.mark.parametrize("name", ["../victim", "..", "{victim}", "a/../../victim"])
def test_a_run_that_is_called_like_a_path_is_damage_and_is_said_in_a_sentence(name, victim, capsys):
    before, name = files(victim), name.format(victim=victim)
    store = tampered(name, None)
    for command in (["runs"], ["delete", "--for-good", name], ["delete", name], ["clean", "--files", "--yes"],
                    ["export", "--out", str(victim.parent / "out"), name], ["clean", "--keep", "0", "--yes"],
                    ["resume", name]):
        assert main(command) == 1, command
        said = capsys.readouterr().err
        assert "is damaged" in said and "which no run can have" in said, (command, said)
    with pytest.raises(LabError, match=r"has a run with the id .* which no run can have"):
        Shelf(store).entries()
    store.delete(name)
    assert files(victim) == before and Store().runs() == []


def test_a_link_in_the_place_of_a_run_goes_alone(victim, capsys, store):
    run_id, before = ended(store), files(victim)
    victim.parent.joinpath("lab", run_id).symlink_to(victim)
    with pytest.raises(LabError, match="is a link"):
        cleanup.delete_spare(run_id)
    marks.delete(store, [run_id])
    assert files(victim) == before and not victim.parent.joinpath("lab", run_id).is_symlink()
