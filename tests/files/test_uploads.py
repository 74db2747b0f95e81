"""The user's own files are kept once, by their content."""

from __future__ import annotations

import pytest

from labcore.errors import LabError
from labcore.files import uploads


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
