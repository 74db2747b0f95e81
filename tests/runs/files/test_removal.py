"""What is deleted lies in the lab, and no link leads the deletion elsewhere."""

import os
import shutil
import stat

import pytest

from labcore.errors import LabError
from labcore.runs.files import removal
from labcore.runs.files.removal import remove


@pytest.fixture
def victim(tmp_path):
    """A folder that is none of the lab's."""
    (tmp_path / "victim" / "run").mkdir(parents=True)
    (tmp_path / "victim" / "run" / "precious").write_text("x")
    return tmp_path / "victim"


@pytest.fixture
def run(lab_home):
    """A run with a file in a folder."""
    (lab_home / "run" / "samples").mkdir(parents=True)
    (lab_home / "run" / "samples" / "step-000001.json").write_text("{}")
    return lab_home / "run"


@pytest.fixture(params=[True, False], ids=["by descriptor", "by path"])
def each_way(request, monkeypatch):
    """As on POSIX, and as on systems that open no folders."""
    monkeypatch.setattr(removal, "_BY_DESCRIPTOR", request.param)


def test_folders_and_files_go(run, each_way):
    remove(run / "samples" / "step-000001.json")
    assert (run / "samples").is_dir() and not [*(run / "samples").iterdir()]
    remove(run)
    remove(run)
    remove(run / "samples")
    assert not run.exists()


def test_of_a_link_only_the_link_goes(lab_home, run, victim, each_way):
    (run / "samples" / "link").symlink_to(victim)
    (lab_home / "other").symlink_to(victim)
    remove(lab_home / "other")
    remove(run)
    assert (victim / "run" / "precious").exists() and not (lab_home / "other").is_symlink() and not run.exists()


def test_a_link_on_the_way_is_not_followed(lab_home, run, victim, each_way):
    (lab_home / "imported").symlink_to(victim)
    with pytest.raises(LabError, match=r"imported is a link, .* delete it yourself"):
        remove(lab_home / "imported" / "run")
    assert (victim / "run" / "precious").exists()
    remove(lab_home / "imported" / "run", below=lab_home / "imported")  # what a folder of the user's own leads to
    assert not (victim / "run").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "../victim", "run/../../victim", "run/.."])
def test_what_is_not_inside_stays(lab_home, run, victim, name, each_way):
    for path in (lab_home / name, victim):
        with pytest.raises(LabError, match="is not inside"):
            remove(path)
    assert run.is_dir() and (victim / "run" / "precious").exists()


@pytest.mark.skipif(not shutil.rmtree.avoids_symlink_attacks, reason="the system opens no folders")
@pytest.mark.parametrize("swapped", ["run", "run/samples"])
def test_a_link_that_takes_a_folders_place_at_the_last_moment_is_not_followed(lab_home, run, victim, swapped,
                                                                              monkeypatch):
    place, before = lab_home / swapped, removal._mode

    def swap(path, folder):
        mode = before(path, folder)
        if path == place and stat.S_ISDIR(mode):
            os.rename(place, lab_home / "moved")
            place.symlink_to(victim / "run" if swapped == "run" else victim)
        return mode

    (victim / "run" / "samples").mkdir()
    monkeypatch.setattr(removal, "_mode", swap)
    with pytest.raises(OSError):
        remove(lab_home / "run" / "samples" / "step-000001.json" if swapped == "run/samples" else run)
    assert (victim / "run" / "precious").exists() and (victim / "run" / "samples").is_dir()
