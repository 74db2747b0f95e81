"""The Export tab: what can be downloaded, and the run as a script for another tool."""

import io
import zipfile

import pytest

from app import sharing
from labcore.exports import figures, folder
from labcore.exports.handover.tools import TOOLS
from labcore.runs.files import checkpoints
from labcore.runs.files.paths import run_folder
from labcore.workers.worker import drive
from tests.app.seeding import ran, seed
from tests.every import now
from tests.runs import fake


def exporting(page, run_id: str, kind: str = "llm"):
    test = page(kind, run=run_id)
    test.query_params["tab"] = "Export"
    return ran(test)


def downloads(test) -> dict[str, bool]:
    """Label -> whether it can be pressed, of the tab's downloads."""
    return {button.proto.label: not button.proto.disabled for button in test.get("download_button")}


def test_a_run_with_checkpoints_can_be_taken_away_whole(page, lab):
    run_id = lab.store.create(fake.grpo(6))
    drive(lab.store, run_id, start=fake.start)
    assert downloads(exporting(page, run_id)) == {
        "Download everything (zip)": True, "Download capsule": True, "metrics.csv": True, "Share as HTML": True,
        "Figures (zip)": True, "Download script": True}


def test_a_run_is_shared_as_one_html_file_and_as_figures(lab, monkeypatch):
    run_id = seed(lab.store, "finished")
    assert sharing.html([run_id]).decode().startswith("<!DOCTYPE html>")
    monkeypatch.setattr(figures, "with_switched", lambda *_: ("kl",))
    monkeypatch.setattr(figures, "SIZES", {"one-column": figures.SIZES["one-column"]})
    with zipfile.ZipFile(io.BytesIO(sharing.figures([run_id], run_id))) as packed:
        names = {name.partition("/")[2] for name in packed.namelist()}
    assert names == {"captions.md", *(f"{size}/kl.{form}" for size in figures.SIZES for form in figures.FORMATS)}


def test_the_best_checkpoint_can_be_taken_in_place_of_the_newest(page, lab):
    run_id = lab.store.create(fake.grpo(6))
    drive(lab.store, run_id, start=fake.start)
    newest = exporting(page, run_id)
    assert not [each for each in newest.button_group if each.label == "Checkpoint in the zip"]
    checkpoints.mark_best(run_folder(run_id), 0, "held_out/greedy", 0.625)
    test = exporting(page, run_id)
    [choice] = [each for each in test.button_group if each.label == "Checkpoint in the zip"]
    assert choice.options == ["Newest (step 6)", "Best (step 0: held-out accuracy, greedy 0.625)"]
    choice.set_value(True)
    ran(test)
    assert not test.exception and test.session_state[f"checkpoint:{run_id}"] is True


def test_of_lora_the_adapter_is_in_the_zip_and_the_merged_model_is_made_when_asked(page, lab, asked):
    asked.reply = lambda spec: {"bytes": folder.file(spec["run"]).parent.mkdir(parents=True) or folder.file(
        spec["run"]).write_bytes(b"zip")}
    run_id = seed(lab.store, "finished", knobs={"lora_rank": 4})
    (run_folder(run_id) / "checkpoints" / "step-000006" / "policy").mkdir(parents=True)
    test = exporting(page, run_id)
    assert "AutoPeftModelForCausalLM" in test.code[0].value and not asked.asked
    next(button for button in test.button if button.label == "Make merged model").click()
    ran(test)
    assert asked.asked[-1] == {"job": "merge", "run": run_id, "step": 6}
    assert downloads(test)["Download merged model (zip)"]


def test_while_a_run_is_going_the_downloads_stand_still_in_a_dialog(page, lab):
    """The page is drawn twice a second then, and a download button that is drawn again forgets its file."""
    run_id = lab.store.create(fake.grpo(6))
    drive(lab.store, run_id, start=fake.start, on_record=lambda _, record, __: record.step == 3 and lab.store.ask(
        run_id, "stop"))
    lab.store.requeue(run_id, mine=True)
    test = exporting(page, run_id)
    assert downloads(test) == {"Download script": True}
    next(button for button in test.button if button.label == "Download …").click()
    ran(test)
    assert downloads(test) == {"Download everything (zip)": True, "Download capsule": True, "metrics.csv": True,
                               "Share as HTML": True, "Figures (zip)": True, "Download script": True}


def test_without_its_first_checkpoint_there_is_no_capsule_and_it_is_said_why(page, lab):
    run_id = seed(lab.store, "finished")
    test = exporting(page, run_id)
    assert downloads(test) == {"Download everything (zip)": False, "Download capsule": False, "metrics.csv": True,
                               "Share as HTML": True, "Figures (zip)": True, "Download script": True}
    [capsule] = [button for button in test.get("download_button") if button.proto.label == "Download capsule"]
    assert "has lost its first checkpoint" in capsule.proto.help


@pytest.mark.parametrize("key", now(TOOLS, "trl"))
def test_the_script_has_the_knobs_as_they_are_now(page, lab, key):
    run_id = seed(lab.store)  # its β went from 0.04 to 0.2
    test = exporting(page, run_id)
    test.session_state["further"] = key
    ran(test)
    [script] = [code.value for code in test.code if f"with {TOOLS[key].label} " in code.value]
    assert run_id in script and "0.2" in next(line for line in script.splitlines() if line.strip().endswith("# beta"))


def test_a_maze_has_no_other_tool_to_go_to(page, lab):
    from labcore.runs.spec.run_spec import make

    run_id = lab.store.create(make(kind="maze", algorithm_key="q_learning", task_key="corridors", steps=3,
                                   knobs={"pace": 0.0}))
    drive(lab.store, run_id)
    test = exporting(page, run_id, "maze")
    assert downloads(test)["Download capsule"] and "Download script" not in downloads(test)
    assert "replay" in test.code[-1].value
