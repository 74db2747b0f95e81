"""Files of other tools dropped on the page: what of them is read, what is a finding, and what is none of them."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Server
from tests.runs.imports import files

SLOW = 60_000  # ms: a busy machine is no reason to fail


@pytest.mark.long
def test_files_of_any_kind_are_dropped_on_the_page(server: Server, page: Page, tmp_path):
    names = {"trainer_state.json": files.TRAINER_STATE, "two.csv": files.TWO_RUNS, "broken.csv": files.NAN_LOSS,
             "events.out.tfevents.17.host.0": b"\x18\0\0\0\0\0\0\0\xa3\x7fK\"\t\0\0\xc0J\x1a\rbrain.Event:2"}
    for name, content in names.items():
        (tmp_path / name).write_bytes(content)
    page.goto(f"{server.url}/runs")
    page.get_by_role("button", name="Import").click(timeout=SLOW)
    page.locator('[data-testid="stFileUploaderDropzoneInput"]').set_input_files(
        [tmp_path / name for name in names], timeout=SLOW)
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("is an event file of TensorBoard: open it in TensorBoard")).to_be_visible(timeout=SLOW)
    for words in ("trainer_state: 2 rows with reward, KL to the reference, loss.", "two 1: 10 rows with",
                  "two 2: 10 rows with", "steps that begin again in line 12", "Loss is NaN: loss NaN from step 21 on"):
        expect(dialog.get_by_text(words).first).to_be_visible(timeout=SLOW)
    with page.expect_navigation(timeout=SLOW):
        dialog.get_by_role("link", name="Compare").click(timeout=SLOW)
    expect(page.get_by_text("two 2 (imported)").first).to_be_visible(timeout=SLOW)
