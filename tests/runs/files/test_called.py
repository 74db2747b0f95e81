"""What a program calls the metrics of the lab: kept, added to, and only shown, so a damaged file harms nothing."""

import pytest

from labcore.runs.files import called
from labcore.runs.files.paths import run_folder
from labcore.runs.store.store import Store
from labcore.watch import Watch
from labcore.workers.watcher import Watcher


def test_names_are_kept_where_they_are_others_and_added_to_later(lab_home):
    with Watch("mine", tool="verl") as run:
        run.log(1, {"critic/rewards/mean": 0.5, "kl": 0.1, "my/number": 1.0})
        run.log(2, {"actor/entropy": 0.4, "num_tokens": 100})
    store = Store()
    Watcher(store).look()
    row, = store.runs(kind="watch")
    assert called.read(row.id) == {"reward": "critic/rewards/mean", "entropy": "actor/entropy"}


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"kl": NaN}', "\udcff"])
def test_a_damaged_file_says_no_names(lab_home, text):
    folder = run_folder("grpo-sort-0001")
    folder.mkdir(parents=True)
    (folder / called.FILE).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert called.read("grpo-sort-0001") == {} and called.read("grpo-sort-0002") == {}
