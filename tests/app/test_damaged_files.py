"""A file that the lab itself wrote and that was damaged since: every page and command goes on, and says so in words."""

import shutil

import pytest

from labcore.cli.main import main
from labcore.runs import jobs
from labcore.runs.fork import fork_spec
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from labcore.workers.worker import drive
from tests.app.seeding import html
from tests.every import now

SMALL = {"sft_steps": 1, "max_new_tokens": 4, "prompts_per_step": 2, "group_size": 2}
DAMAGES = {
    "empty": lambda content: b"", "cut": lambda content: content[:len(content) // 2],
    "noise": lambda content: bytes(byte ^ 0x95 for byte in content), "null": lambda content: b"null",
    "another form": lambda content: b'[{"a": 1}]', "without its parts": lambda content: b"{}"}
KEPT_BY_OTHERS = ("policy", "model")  # folders that transformers writes and reads


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The home of a lab in which a run was made, and that run."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("RL_LAB_HOME", str(folder))
        patch.delenv("RL_LAB_STORE", raising=False)
        store = Store()
        run_id = store.create(make(algorithm_key="grpo", task_key="sort", steps=2, knobs=SMALL))
        assert drive(store, run_id) == "finished"
    return folder, run_id


@pytest.fixture
def home(made, tmp_path):
    """A copy of that home, which this test's lab has, and its run."""
    shutil.copytree(made[0], tmp_path, dirs_exist_ok=True)
    return tmp_path, made[1]


def own_files(folder):
    return [path for path in sorted(folder.rglob("*.json")) if not {*KEPT_BY_OTHERS} & {*path.parts}]


def opened(page, run_id) -> str:
    """All that is said on the pages that read the files of a run."""
    said = []
    for name, query in (("llm", {"run": run_id}), ("llm", {"run": run_id, "tab": "Microscope"}), ("runs", {}),
                        ("compare", {"runs": run_id}), ("home", {}), ("playground", {"runs": f"{run_id}@2"})):
        test = page(name, **query)
        assert name != "llm" or not test.error, "the page goes on"
        said += [html(test), *(each.value for each in (*test.caption, *test.error, *test.markdown))]
    return " ".join(said)


@pytest.mark.parametrize("damage", now(DAMAGES, "cut", "another form"))
def test_every_page_and_command_goes_on_beside_damaged_files(home, page, capsys, damage):
    folder, run_id = home
    assert "is damaged" not in opened(page, run_id)  # and asks for jobs
    for asked in (folder / "jobs").glob("*/spec.json"):
        asked.with_name("result.json").write_text('{"a": 1}')
    files = own_files(folder)
    assert {path.name for path in files} >= {"spec.json", "result.json", "versions.json", "state.json", "run.json",
                                             "step-000001.json"}
    for path in files:
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    said = opened(page, run_id)
    assert "step-000002.json is damaged" in said and "Traceback" not in said
    for command in (["runs"], ["clean", "--files"], ["compare", run_id], ["doctor", run_id],
                    ["export", run_id, "--out", str(folder / "out")]):
        main(command)
    assert "Traceback" not in "".join(capsys.readouterr())
    assert all(path.exists() for path in files), "nothing is deleted that somebody could mend"


@pytest.mark.parametrize("damage", now(DAMAGES, "cut"))
def test_runs_that_need_damaged_files_say_which(home, lab, damage):
    folder, run_id = home
    for path in own_files(folder):
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    other = lab.store.create(make(algorithm_key="grpo", task_key="sort", steps=1, knobs=SMALL))
    assert drive(lab.store, other) == "finished", "it starts from the base, whose weights are whole"
    said = []
    for mended in ((), (folder / run_id / "spec.json",)):
        for path in mended:
            path.write_text(lab.store.run(run_id).spec.to_json())
        forked = lab.store.create(fork_spec(lab.store, run_id, 2))
        assert drive(lab.store, forked) == "failed"
        said.append(lab.store.run(forked).message)
    assert "/spec.json is damaged" in said[0] and "labcore export" in said[0]
    assert said[1].startswith("The checkpoint ") and "cannot be read (" in said[1]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_job_is_done_again(lab, damage):
    asked = {"job": "models_held", "specs": []}
    job = jobs.put(asked)
    whole = jobs.compute(asked)
    path = jobs.folder(job) / "result.json"
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    found = jobs.outcome(job)
    if damage == "without its parts":
        return
    assert found.result is None and f"{path} is damaged" in found.error and "try again" in found.error
    assert jobs.compute(asked) == whole and jobs.outcome(job).result == whole
