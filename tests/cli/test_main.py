"""The command line as a user meets it: one sentence for every mistake, an exit status, and no traceback."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from labcore import machine
from labcore.cli import commands, sweeping
from labcore.cli.main import main, parser
from labcore.errors import LabError
from labcore.runs.files.paths import home
from labcore.runs.store import schema
from labcore.runs.store.store import Store
from labcore.workers.lifeline import Lifeline
from tests.runs import fake
from tests.words import saying, says

SORT = ("run", "--algorithm", "grpo", "--task", "sort")
OWN = ("run", "--algorithm", "grpo", "--prompts")


def refused(capsys, *arguments: str) -> str:
    """The one sentence that a command ends with; nothing was trained."""
    assert main(arguments) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith("labcore: ") and printed.err.count("\n") == 1 and printed.out == ""
    return printed.err


@pytest.mark.parametrize("arguments, words", [
    (("--set", "beta=100"), "outside its bounds: use a value from 0 to 10"),
    (("--rollouts", "vllm", "--device", "cpu"), "vLLM samples on an NVIDIA GPU, and this run is on the device cpu"),
    (("--set", "beta"), "is no KNOB=VALUE"),
    (("--set", "mini_batches=5"), "does not divide the batch of 32 prompts"),
    (("--set", "advantge=gae"), "did you mean 'advantage'"),
    (("--task", "sortt"), "did you mean 'sort'"),
    (("--algorithm", "gppo"), "did you mean 'ppo'"),
    (("--seed", "-1"), "seed must be a whole number from 0"),
    (("--task", "prompts"), "give --prompts FILE"),
    (("--model", ""), "The model is missing"),
])
def test_a_setting_that_cannot_be(capsys, arguments, words):
    assert words in refused(capsys, *SORT, *arguments)
    assert not (home() / "lab.db").exists()  # told before anything is made


def test_moments_in_8_bits_without_their_package_are_refused_before_there_is_a_run(capsys, monkeypatch):
    monkeypatch.setattr("labcore.runs.spec.eight_bit.find_spec", lambda _: None)
    assert "pip install -r requirements-8bit.txt" in refused(capsys, *SORT, "--set", "optimizer=adamw_8bit")
    assert not (home() / "lab.db").exists()


def test_a_file_that_cannot_be_used(capsys, tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_bytes(b'{"prompt": "a", "answer": "1"}\n{"prompt": "b"}\n')
    assert "Line 2 of own.jsonl has no field 'answer'" in refused(capsys, *OWN, str(path))
    assert "There is no file" in refused(capsys, *OWN, str(tmp_path / "none"))
    path.write_text('{"prompt": "a", "chosen": "x", "rejected": "x"}\n')
    said = refused(capsys, "run", "--algorithm", "dpo", "--preferences", str(path))
    assert "same text as chosen and rejected" in said


@pytest.mark.parametrize("given, moved", [
    (("--preferences",), False), (("--prompts",), True), (("--text",), True),
    (("--task", "prompts", "--prompts"), True),
    (("--task", "prompts", "--preferences"), True), (("--task", "preferences", "--prompts"), False)])
@pytest.mark.parametrize("command", ["run", "sweep"])
def test_preferences_are_preferences_wherever_they_are_given(capsys, tmp_path, given, moved, command):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"prompt": "a", "chosen": "x", "rejected": "y", "answer": "x"}\n' * 9)
    spec = commands.spec_of(parser().parse_args([command, "--algorithm", "dpo", *given, str(path)]))
    assert spec.task == "preferences" and spec.knobs["pairs"] == "dataset"
    assert ("so the run learns the task preferences" in capsys.readouterr().err) == moved


def test_preferences_for_what_learns_from_rewards_are_refused_in_one_sentence(capsys, tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"prompt": "a", "chosen": "x", "rejected": "y"}\n')
    assert "GRPO learns from prompts with answers" in refused(capsys, *OWN, str(path))


def test_a_folder_that_cannot_be_written_is_told_before_the_training(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert "is a file" in refused(capsys, *SORT, "--out", str(tmp_path / "file"))
    assert "cannot be made" in refused(capsys, *SORT, "--out", str(tmp_path / "file" / "out"))
    assert not (home() / "lab.db").exists()


@pytest.mark.parametrize("command", [("pause",), ("step",), ("stop",), ("resume",), ("set",), ("export",), ("fork",)])
def test_a_run_that_there_is_not(capsys, command, tmp_path):
    rest = {"set": ("beta=1",), "export": ("--out", str(tmp_path / "out"))}.get(command[0], ())
    assert "There is no run 'nobody'" in refused(capsys, *command, "nobody", *rest)


def test_what_is_wrong_is_said_without_making_a_store(capsys, lab_home):
    assert "'foo-dead'" in refused(capsys, "run", "--algorithm", "grpo", "--task", "foo-dead")
    assert not (lab_home / "lab.db").exists()


def test_what_is_wrong_is_said_with_ids_where_the_store_is_of_an_earlier_version(capsys):
    store, version = Store(), schema.meta.c.key == "version"
    run_id = store.create(fake.grpo(5))
    words = "run", "--algorithm", "grpo", "--task", run_id
    assert f"GRPO sort #1 ({run_id})" in refused(capsys, *words)
    with store._writing() as connection:
        connection.execute(schema.meta.update().where(version), {"value": "7"})
    said = refused(capsys, *words)
    assert f"'{run_id}'" in said and "#1" not in said
    with store._reading() as connection:
        assert connection.scalar(schema.meta.select().with_only_columns(schema.meta.c.value).where(version)) == "7"


def test_a_finished_run_is_neither_resumed_nor_steered(capsys, store):
    run_id = store.create(fake.grpo(5), mine=True)
    store.set_state(run_id, "finished")
    assert says(refused(capsys, "resume", run_id), "is finished", "start a new run")
    assert says(refused(capsys, "set", run_id, "beta=1"), "no effect", "start a new one")


def test_a_diverged_run_is_resumed_with_another_learning_rate(capsys, monkeypatch, store):
    run_id = store.create(fake.grpo(5), mine=True)
    store.set_state(run_id, "diverged")
    assert "outside its bounds" in refused(capsys, "resume", run_id, "--set", "learning_rate=2")
    assert "cannot change during a run" in refused(capsys, "resume", run_id, "--set", "sft_steps=1")
    assert store.run(run_id).state == "diverged"
    monkeypatch.setattr(commands, "train", lambda *_: 0)
    assert main(["resume", run_id, "--set", "learning_rate=1e-4"]) == 0
    assert [control.payload for control in store.asked(run_id)] == [{"knob": "learning_rate", "value": "1e-4"}]


def test_a_resumed_run_takes_knobs_that_go_together_with_each_other_and_with_those_in_use(capsys, monkeypatch, store):
    run_id = store.create(fake.grpo(5), mine=True)
    prompts = store.run(run_id).spec.knobs["prompts_per_step"]
    store.log(run_id, "knob", {"knob": "prompts_per_step", "from": prompts, "to": 35, "update": 1, "between": 1,
                               "text": f"prompts {prompts} → 35"}, 1)
    store.set_state(run_id, "stopped")
    assert "does not divide the batch of 35 prompts" in refused(capsys, "resume", run_id, "--set", "mini_batches=3")
    monkeypatch.setattr(commands, "train", lambda *_: 0)
    assert main(["resume", run_id, "--set", "mini_batches=11", "--set", "prompts_per_step=33"]) == 0


def test_no_runs_yet(capsys):
    assert main(["runs"]) == 0 and "No runs yet" in capsys.readouterr().out


def test_a_preset_is_run_with_what_is_given_on_top(capsys):
    spec = commands.spec_of(parser().parse_args(["run", "--preset", "cliff_safe", "--seed", "3"]))
    assert (spec.kind, spec.algorithm, spec.task, spec.steps, spec.seed) == ("maze", "sarsa", "cliff", 300, 3)
    assert spec.knobs["epsilon"] == 0.1
    spec = commands.spec_of(parser().parse_args(["run", "--preset", "clip", "--steps", "2", "--set", "clip_low=0.1"]))
    assert (spec.steps, spec.knobs["clip_low"], spec.knobs["updates_per_batch"]) == (2, 0.1, 8)
    with pytest.raises(LabError, match=saying("maze", "not llm", "remove --kind llm")):
        commands.spec_of(parser().parse_args(["run", "--preset", "cliff_safe", "--kind", "llm"]))
    assert commands.spec_of(parser().parse_args(["run", "--preset", "clip", "--kind", "llm"])).kind == "llm"
    for wrong in (["run"], ["run", "--preset", "clipp"], ["run", "--preset", "clip", "--algorithm", "grpo"]):
        with pytest.raises(SystemExit):
            parser().parse_args(wrong)
    assert "did you mean 'clip'" in capsys.readouterr().err


def test_a_reader_that_stops_reading_is_no_fault():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "labcore", "list", "--kind", "maze", "--json"], stdout=writer,
                          stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert done.returncode == 0 and done.stderr == ""


def test_ctrl_c_is_no_fault(capsys, monkeypatch):
    def interrupted(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, "runs", interrupted)
    assert main(["runs"]) == 130 and capsys.readouterr().err == "labcore: interrupted.\n"


@pytest.mark.parametrize("command, word", [("stop", "stopping"), ("pause", "pausing")])
def test_a_live_run_is_said_to_obey_after_its_step_before_it_does(capsys, monkeypatch, command, word, store):
    run_id = store.create(fake.grpo(), mine=True)
    store.set_state(run_id, "running")
    monkeypatch.setattr(commands, "OBEY_SECONDS", 0.0)
    assert main([command, run_id]) == 0
    said = capsys.readouterr()
    assert said.err.endswith(f": {word} …\n") and "has not answered yet" in said.out
    assert main(["runs"]) == 0 and f" {word} " in capsys.readouterr().out
    store.settle(store.asked(run_id)[0].id, 3)
    assert store.run(run_id).pending == ""


def test_the_first_ctrl_c_in_the_foreground_says_what_it_waits_for(capfd):
    with Lifeline() as lifeline:
        os.kill(os.getpid(), signal.SIGINT)
        assert lifeline.cut and "stopping; a step" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()


def test_a_run_from_the_command_line(capsys, tmp_path):
    out = tmp_path / "out"
    assert main([*SORT, "--steps", "2", "--set", "sft_steps=0", "--set", "prompts_per_step=4", "--json",
                 "--out", str(out)]) == 0
    got = json.loads(capsys.readouterr().out)
    assert got["state"] == "finished" and got["step"] == 2 and "exact_match" in got["metrics"]
    assert {path.name for path in out.iterdir()} == {
        "metrics.csv", "events.csv", "knobs.csv", "spec.json", "checkpoint"}
    header, *rows = (out / "metrics.csv").read_text().splitlines()
    assert header.startswith("step,tokens,seconds,") and len(rows) == 2
    assert main(["runs"]) == 0 and got["run"] in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [("run", "--algorithm", "grpo", "--steps", "abc"), ("runn",), ()])
def test_a_word_that_is_no_option_is_one_sentence(capsys, arguments):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("labcore: ") and len(said.splitlines()) == 1


def test_without_its_packages_it_says_what_to_do():
    """As with the system's python beside the environment that `make run` made."""
    program = "import runpy, sys; sys.modules['tsdownsample'] = None; runpy.run_module('labcore', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], timeout=60,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "tsdownsample is not installed" in done.stderr and "activate the environment" in done.stderr


def test_a_run_whose_rewards_are_no_function_is_not_resumed_with_one(capsys, tmp_path):
    run_id = Store().create(fake.grpo(10), mine=True)
    file = tmp_path / "mine.py"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef score(prompt, completion): return 1.0\n")
    assert "do not come from a function: leave --reward out" in refused(
        capsys, "resume", run_id, "--reward", f"{file}:score")
    assert not (tmp_path / "ran").exists()


def test_bf16_without_its_arithmetic_is_one_line_before_the_start(monkeypatch, capsys):
    monkeypatch.setattr(machine, "bf16", lambda device="auto": machine.Bf16("this processor (A Xeon)", False))
    monkeypatch.setattr(commands, "train", lambda *_: 0)
    assert main([*SORT, "--set", "dtype=bf16"]) == 0
    assert says(capsys.readouterr().err, "`dtype` is bf16", "A Xeon", "no bf16", "choose fp32")
    assert main(SORT) == 0 and capsys.readouterr().err == ""


@pytest.mark.parametrize("options, said", [
    (("--set", "kl_estimator=k1"), "k1 in the loss does not hold the policy near the reference: from the second "),
    (("--set", "kl_estimator=k1", "--set", "updates_per_batch=1"), "k1 in the loss has no gradient on average"),
    (("--set", "surrogate=bounded_clip", "--set", "clip_delta=1.1"), "`clip_delta` is below 1 + ε_high"),
    (("--set", "surrogate=bounded_clip", "--set", "dual_clip=0.5"), "`dual_clip` is not above 1"),
    (("--set", "max_new_tokens=4"), "The length limit of 4 tokens cuts off 64 of 64 right answers: set "
                                    "`max_new_tokens` to 7."),
    (("--set", "max_new_tokens=6"), ""), (("--set", "beta=0", "--set", "kl_estimator=k1"), ""), ((), "")])
def test_what_the_page_says_beside_the_form_is_said_before_the_start(monkeypatch, capsys, options, said):
    """But what the algorithm's own defaults are like: that is what it is."""
    monkeypatch.setattr(commands, "train", lambda *_: 0)
    assert main([*SORT, *options]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith(f"labcore: {said}") for line in lines) if said else not lines


@pytest.mark.parametrize("limit, verifier, said", [
    (4, "exact", "labcore: 2 of 3 answers are longer than the length limit of 4 tokens, so the model cannot write them "
                 "to their end: set `max_new_tokens` to 9.\n"), (9, "exact", ""), (4, "contains", "")])
def test_answers_of_a_file_that_the_limit_cuts_off_are_said(monkeypatch, capsys, tmp_path, limit, verifier, said):
    monkeypatch.setattr(commands, "train", lambda *_: 0)
    file = tmp_path / "sums.jsonl"
    file.write_text("".join(f'{{"prompt": "p{at}", "answer": "{answer}"}}\n' for at, answer in enumerate(
        ("12", "12345678", "12345678"))))
    assert main(["run", "--algorithm", "grpo", "--prompts", str(file), "--verifier", verifier, "--set",
                 f"max_new_tokens={limit}"] + (["--set", "pattern=1"] if verifier == "contains" else [])) == 0
    assert capsys.readouterr().err == said


def test_the_runs_of_a_sweep_say_each_caution_once(monkeypatch, capsys):
    monkeypatch.setattr(sweeping, "run_all", lambda *_: 0)
    assert main(["sweep", *SORT[1:], "--set", "kl_estimator=k1", "--sweep", "beta=0,0.5,1"]) == 0
    assert capsys.readouterr().err.count("k1 in the loss") == 1


@pytest.mark.parametrize("arguments", [
    (*SORT, "--set", "nope=1"), ("run", "--algorithm", "nope"), ("cost", "nope"), ("cost", "--set", "nope=1"),
    ("sweep", *SORT[1:], "--sweep", "nope=1,2"), ("lesson", "nope"), (*SORT, "--set", "reward_source=nope")])
def test_a_wrong_name_is_answered_in_few_words(capsys, arguments):
    assert len(refused(capsys, *arguments)) < 280


@pytest.mark.parametrize(("arguments", "words"), [
    (("nope",), "there is no 'nope': choose one of "), (("export", "x", "--to", "trk"), "no 'trk': did you mean 'trl'"),
    (("list", "--kind", "x" * 900), "no 'xxxx")])
def test_a_wrong_choice_is_answered_in_few_words(capsys, arguments, words):
    with pytest.raises(SystemExit):
        main(arguments)
    said = capsys.readouterr().err
    assert words in said and len(said) < 280
