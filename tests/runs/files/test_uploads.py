"""The user's own files are kept once, by their content."""

import pytest

from labcore.errors import LabError
from labcore.runs.files import uploads
from tests.runs.files.made_names import HOSTILE


def test_equal_content_is_kept_once_under_its_name(tmp_path):
    first = uploads.keep("../my book.txt", b"abc")
    assert uploads.keep("my book.txt", b"abc") == first and first.name == "my book.txt"
    assert first.parent == uploads.place(b"abc") != uploads.place(b"abd")
    assert uploads.names(first.parent.name) == ["my book.txt"] and uploads.size(first.parent.name) == 3
    (tmp_path / "other.txt").write_bytes(b"abc")
    assert uploads.keep_file(tmp_path / "other.txt", limit=3).parent == first.parent
    with pytest.raises(LabError, match="above the limit"):
        uploads.keep_file(tmp_path / "other.txt", limit=2)


def test_a_kept_file_that_was_deleted_is_told_and_others_are_nobody_s_business(tmp_path):
    kept = uploads.keep("a.txt", b"a")
    uploads.check([str(kept), str(tmp_path / "never"), "Qwen/Qwen2.5-0.5B"])
    kept.unlink()
    with pytest.raises(LabError, match=r"a\.txt was deleted by a clean-up"):
        uploads.check([str(kept)])


@pytest.mark.parametrize("name", [*HOSTILE, "a/../../b.jsonl", ".jsonl", f"{'é' * 300}.jsonl", f"{'.' * 300}x"])
def test_an_upload_stays_in_its_folder_whatever_it_is_called(name):
    kept = uploads.keep(name, b"abc")
    assert kept.parent == uploads.place(b"abc") and kept.resolve() == kept and kept.read_bytes() == b"abc"
    assert uploads.file_at(kept.parent.name) == kept and len(kept.name.encode()) <= uploads.MOST_NAME
    assert not name.endswith("é.jsonl") or kept.name.endswith("é.jsonl")
