"""`watch`: folders of other trainers, once or until Ctrl+C; without a folder it lists the watched runs."""

from types import SimpleNamespace

import pytest

from labcore.cli import watching
from labcore.cli.main import main
from labcore.runs.store.store import Store
from labcore.watch import Watch
from tests.watch.following.tools import copied, sent
from tests.watch.tools import begin, numbers, read, write


def test_what_is_there_is_read_once_and_then_nothing_is_new(tmp_path, capsys):
    folders = [str(copied(name, tmp_path)) for name in ("verl", "wandb")]
    assert main(["watch", *folders, "--once"]) == 0
    said = capsys.readouterr().out
    assert "verl/gsm8k/qwen_grpo is sent to the lab as verl-gsm8k-qwen-grpo-" in said and "grpo-qwen is sent" in said
    assert {"verl/gsm8k/qwen_grpo", "verl/validation", "grpo-qwen"} == set(sent("end"))
    assert main(["watch", *folders, "--once"]) == 0
    assert capsys.readouterr().out == "No new data.\n"


def test_it_follows_until_ctrl_c_and_then_the_runs_have_not_ended(tmp_path, monkeypatch):
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt
    monkeypatch.setattr(watching, "time", SimpleNamespace(sleep=sleep))  # the threads of others sleep as ever
    assert main(["watch", str(copied("verl", tmp_path))]) == 0
    assert looks == [1.0] * 3 and len(sent("numbers")["verl/gsm8k/qwen_grpo"]) == 4
    assert sent("end")["verl/gsm8k/qwen_grpo"] == []


@pytest.mark.parametrize("arguments, said", [
    (["{}/none", "--once"], "There is no folder"), (["{}", "{}/a\0b"], "cannot be the name of a file")])
def test_bad_words_are_one_sentence(arguments, said, tmp_path, capsys):
    assert main(["watch", *(word.format(tmp_path) for word in arguments)]) == 1
    assert said in capsys.readouterr().err


def test_a_lab_that_is_shared_for_reading_watches_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RL_LAB_READ_ONLY", "1")
    assert main(["watch", str(tmp_path), "--once"]) == 1 and "shared for reading" in capsys.readouterr().err


def test_a_client_that_cannot_send_is_said(tmp_path, monkeypatch, capsys):
    def broken(self: Watch, *_: object, **__: object) -> None:
        self.active = False
    monkeypatch.setattr(Watch, "__init__", broken)
    assert main(["watch", str(copied("verl", tmp_path)), "--once"]) == 1
    assert "cannot be sent to the lab" in capsys.readouterr().err


def test_watched_runs_are_listed_and_the_way_to_send_one_is_said(capsys):
    assert main(["watch"]) == 0 and "No watched runs yet" in capsys.readouterr().out
    write("r", begin(name="qwen"), numbers(1, reward=0.5), {"kind": "end"})
    read(Store())
    assert main(["watch"]) == 0
    out = capsys.readouterr().out
    assert "qwen #1" in out and "rl-lab watch DIR" in out and "No watched runs" not in out
