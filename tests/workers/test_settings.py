"""The table of settings: it is complete, the documentation has the same, and no secret is in it."""

import re
from pathlib import Path

import pytest

from labcore.errors import LabError
from labcore.workers.settings import NOT_SET, SETTINGS

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"RL_LAB_[A-Z]+(?:_[A-Z]+)*")
VALUES = {setting.name: setting.value for setting in SETTINGS}


def test_every_setting_that_the_code_knows_is_in_the_table_and_in_the_documentation():
    read = {name for folder in ("labcore", "app") for path in (ROOT / folder).rglob("*.py")
            for name in NAME.findall(path.read_text("utf-8"))}
    documented = re.findall(r"^\| `(RL_LAB_\w+)`", (ROOT / "docs" / "settings.md").read_text("utf-8"), re.MULTILINE)
    assert read == {*VALUES} == {*documented} and len(read) > 10


def test_what_is_not_set_is_said_to_be_so(monkeypatch):
    for name in VALUES:
        monkeypatch.delenv(name, raising=False)
    said = {name: value() for name, value in VALUES.items()}
    assert all(said.values()) and said["RL_LAB_JUDGE_URL"] == said["RL_LAB_LESSONS"] == NOT_SET
    assert said["RL_LAB_EXECUTOR"] == "local" and said["RL_LAB_STORE"].endswith("lab.db")


@pytest.mark.parametrize("name, written", [
    ("RL_LAB_JUDGE_KEY", "sk-geheim"), ("RL_LAB_JUDGE_URL", "https://me:geheim@host/v1?key=geheim"),
    ("RL_LAB_ARTIFACTS", "s3://key:geheim@bucket/lab"), ("RL_LAB_STORE", "postgresql+psycopg://me:geheim@host/lab")])
def test_no_secret_is_told(monkeypatch, name, written):
    monkeypatch.setenv(name, written)
    try:
        told = " ".join(value() for value in VALUES.values())
    except LabError as error:
        told = str(error)
    assert "geheim" not in told and VALUES[name]() != NOT_SET
