"""A capsule's way: out of the page, checked by replay, back in as a run of the list."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from labcore.cli.main import main
from tests.browser.conftest import Server

SLOW = 60_000


@pytest.fixture
def labcore(monkeypatch, capsys):
    """labcore(home, "runs", "--json") is what the command prints: its own process would only import torch once more."""
    def said(home: Path, *arguments: str) -> str:
        monkeypatch.setenv("RL_LAB_HOME", str(home))
        status = main(arguments)
        out, err = capsys.readouterr()
        assert status == 0, err
        return out
    return said


@pytest.mark.long
def test_a_capsule_goes_out_is_replayed_and_comes_back(server: Server, page: Page, labcore, tmp_path):
    told = labcore(server.home, "run", "--kind", "maze", "--algorithm", "sarsa", "--steps", "20", "--json")
    run_id = json.loads(told)["run"]
    page.goto(f"{server.url}/maze?run={run_id}")
    page.get_by_role("tab", name="Export").click(timeout=SLOW)
    with page.expect_download(timeout=SLOW) as download:
        page.get_by_role("button", name="Download capsule").click(timeout=SLOW)
    capsule = tmp_path / download.value.suggested_filename
    download.value.save_as(capsule)
    assert labcore(tmp_path / "other", "replay", str(capsule)).startswith(f"{run_id} matches bit for bit: 20 steps")

    page.goto(f"{server.url}/runs")
    page.get_by_role("button", name="Import").click(timeout=SLOW)
    broken = tmp_path / "broken.zip"
    broken.write_bytes(capsule.read_bytes()[:3000])
    page.locator('[data-testid="stFileUploaderDropzoneInput"]').set_input_files([broken, capsule], timeout=SLOW)
    expect(page.get_by_text("broken.zip is not a whole zip file")).to_be_visible(timeout=SLOW)
    expect(page.get_by_text("20 steps of SARSA on corridors")).to_be_visible(timeout=SLOW)
    page.get_by_role("button", name="Show in the list").click(timeout=SLOW)
    rows = json.loads(labcore(server.home, "runs", "--json"))
    assert [row["step"] for row in rows if row["message"].startswith(f"Imported from {capsule.name}")] == [20]
