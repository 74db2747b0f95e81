"""The command `publish`."""

import pytest

from labcore.cli.main import main
from labcore.runs.files.artifacts import manifest
from labcore.runs.files.paths import run_folder
from tests.runs import fake
from tests.workers.tools import run
from tests.workers.two_homes.tools import STEPS, objects


def test_the_command_publishes_what_is_not_published_and_sends_again_what_is_damaged(machines, store, capsys):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {20: machines.unplug}) == "finished"
    assert main(["publish"]) == 1 and "is not there" in capsys.readouterr().err
    machines.plug()
    assert main(["publish"]) == 0 and capsys.readouterr().out == f"GRPO sort #1 ({run_id}) is published.\n"
    assert main(["publish"]) == 0 and "Everything on this machine is in file://" in capsys.readouterr().out
    before = {name: path.read_bytes() for name, path in objects(machines.shared).items()}
    for name, path in objects(machines.shared).items():
        if name.startswith(run_id):
            path.write_bytes(b"{}" if name.endswith(manifest.NAME) else b"")
    assert main(["publish", run_id, "--again"]) == 0
    assert {name: path.read_bytes() for name, path in objects(machines.shared).items()} == before


@pytest.mark.parametrize("words, says", [
    (["nothing"], "no files of a run 'nothing'"), (["base/abc"], "no files of a run"), (["--again"], "name the runs"),
    (["../x"], "no files of a run")])
def test_the_command_says_what_it_cannot_publish(machines, store, capsys, words, says):
    assert main(["publish", *words]) == 1 and says in capsys.readouterr().err


def test_the_command_says_that_there_is_no_store(monkeypatch, lab_home, capsys):
    assert main(["publish"]) == 1 and "set RL_LAB_ARTIFACTS to s3://" in capsys.readouterr().err


def test_the_command_leaves_a_run_that_is_going_to_its_worker(machines, store, capsys):
    run_id = store.create(fake.grpo(STEPS))
    run_folder(run_id).mkdir(parents=True)
    assert main(["publish", run_id]) == 1 and "its worker publishes it" in capsys.readouterr().err
