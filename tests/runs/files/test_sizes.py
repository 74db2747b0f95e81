"""What files take: all below a folder, and no fault where one vanishes meanwhile."""

import os

from labcore.runs.files import sizes


def test_all_files_below_count_and_links_count_as_themselves(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one").write_bytes(b"x" * 5)
    (tmp_path / "a" / "b" / ".two").write_bytes(b"x" * 7)
    (tmp_path / "big").write_bytes(b"x" * 1000)
    assert sizes.size(tmp_path / "a") == 12 and sizes.size(tmp_path / "big") == 1000
    (tmp_path / "a" / "link").symlink_to(tmp_path / "big")
    (tmp_path / "a" / "folder").symlink_to(tmp_path)
    links = sum(len(os.readlink(tmp_path / "a" / name)) for name in ("link", "folder"))
    assert sizes.size(tmp_path / "a") == 12 + links
    assert sizes.size(tmp_path / "nowhere") == 0


def test_a_file_with_two_names_counts_once(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 10)
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    assert sizes.size(tmp_path) == 10


def test_what_vanishes_meanwhile_counts_as_nothing(tmp_path, monkeypatch):
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"x" * 10)
    (tmp_path / "d").mkdir()
    scandir = os.scandir

    class Vanishing:
        """The folder as it was listed, of which two entries are deleted before anybody looks at them."""

        def __init__(self, path):
            self.entries = [*scandir(path)]
            if path == tmp_path:
                (tmp_path / "b").unlink()
                (tmp_path / "d").rmdir()

        def __enter__(self):
            return iter(self.entries)

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(sizes.os, "scandir", Vanishing)
    assert sizes.size(tmp_path) == 20
