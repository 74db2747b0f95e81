"""Whatever a user calls a thing on the command line, the answer is one short line and an exit status."""

import os

import pytest

from labcore.cli.main import main
from labcore.runs.files.paths import home

NAMES = {"long": "x" * 300, "very long": "x" * 100_000, "deep": "a/" * 5000, "words": "a b " * 5000,
         "two lines": "a\nb", "colours": "\x1b[31mred", "no text": "\udcff", "nothing": "",
         "import": "imported-" + "x" * 300, "base": "base:" + "x" * 300, "step": "x" * 300 + "@3",
         "table": "x" * 300 + ".csv",
         "umlauts": "ä" * 130}
GRPO = ("run", "--algorithm", "grpo")
COMMANDS = [("replay", "NAME"), ("import", "NAME"), ("play", "NAME"), ("compare", "NAME"), ("doctor", "NAME"),
            ("delete", "NAME"), ("restore", "NAME"), ("mark", "NAME", "--star"), ("fork", "NAME"), ("resume", "NAME"),
            ("pause", "NAME"), ("set", "NAME", "beta=0.1"), ("export", "NAME", "--out", "here"),
            ("export", "NAME", "--to", "trl"), ("answer", "NAME", "--prompt", "a"), ("batch", "NAME"),
            ("label", "NAME"), ("lesson", "NAME"), ("sweeps", "NAME", "--cancel"), ("mixes", "--delete", "NAME"),
            (*GRPO, "--task", "NAME"), (*GRPO, "--model", "NAME"), ("run", "--algorithm", "NAME"),
            (*GRPO, "--prompts", "NAME"), (*GRPO, "--preferences", "NAME"), (*GRPO, "--text", "NAME"),
            (*GRPO, "--reward", "NAME"), (*GRPO, "--reward", "NAME.py:score"), (*GRPO, "--set", "NAME"),
            (*GRPO, "--set", "NAME=1"), (*GRPO, "--set", "beta=NAME"), (*GRPO, "--set", "advantage=NAME"),
            ("run", "--algorithm", "reward_model", "--task", "style", "--labels", "NAME"),
            ("run", "--kind", "maze", "--algorithm", "sarsa", "--maze", "NAME"), (*GRPO, "--seed", "NAME"),
            ("sweep", "--algorithm", "grpo", "--sweep", "beta=NAME"), ("clean", "--older-than", "NAME"),
            ("sweep", "--algorithm", "grpo", "--seeds", "NAME")]


# What every command is given; each of the other names goes to every fourth command, and so to all sorts of commands.
EVERYWHERE = ("long", "two lines", "no text", "nothing")
OTHERS = [kind for kind in NAMES if kind not in EVERYWHERE]


@pytest.mark.parametrize("place", range(len(COMMANDS)), ids=[" ".join(command) for command in COMMANDS])
def test_a_name_that_cannot_be(capsys, tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    for kind in (*EVERYWHERE, *OTHERS[place % 4::4]):
        try:
            status = main([word.replace("NAME", NAMES[kind]) for word in COMMANDS[place]])
        except SystemExit as error:  # argparse's
            status = error.code
        printed = capsys.readouterr()
        assert status in (1, 2), kind
        assert printed.err.startswith("labcore: ") and printed.err.count("\n") == 1 and not printed.out, kind
        assert len(printed.err) < 1500 and "x" * 81 not in printed.err and "a b " * 25 not in printed.err, kind
        printed.err.encode()
    assert not list(home().glob("*.part"))


def test_a_run_that_would_fill_its_name(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--algorithm", "grpo", "--out", "x" * 300]) == 1
    assert "cannot be the name of a file or a folder" in capsys.readouterr().err
    assert not (home() / "lab.db").exists()


READERS = [("import",), ("replay",), ("compare",), ("doctor",), (*GRPO, "--prompts"), (*GRPO, "--preferences"),
           (*GRPO, "--text"), ("run", "--algorithm", "reward_model", "--task", "style", "--labels"),
           ("run", "--kind", "maze", "--algorithm", "sarsa", "--maze")]


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_what_is_no_regular_file(capsys, tmp_path, command):
    device, pipe, folder = tmp_path / "device.csv", tmp_path / "pipe.csv", tmp_path / "folder.csv"
    device.symlink_to("/dev/zero")
    os.mkfifo(pipe)
    folder.mkdir()
    for path in (device, pipe, folder):
        assert main([*command, str(path)]) in (1, 2)
        assert f"{path.name} is a {'folder' if path == folder else 'device or a pipe'}" in capsys.readouterr().err
    assert main([*GRPO, "--reward", f"{device}:score"]) == 1
    assert "is a device or a pipe" in capsys.readouterr().err


@pytest.mark.parametrize("days", ["nan", "inf", "-inf", "-1", "1e999"])
def test_an_age_that_is_none(capsys, days):
    assert main(["clean", f"--older-than={days}"]) == 1
    assert "give a number from 0" in capsys.readouterr().err
