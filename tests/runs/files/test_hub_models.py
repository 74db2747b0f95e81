"""Models of the hub: a whole download, one that broke off and is resumed, and what is said where none can be had."""

import errno
import hashlib
import json
import threading
from pathlib import Path

import pytest
from huggingface_hub import constants, hf_hub_download

from labcore.errors import LabError
from labcore.runs.files import hub_models
from labcore.runs.files.hub_models import cached, complete, here
from labcore.runs.spec import activity
from tests.runs.files.hub import COMMIT, serving, turn_to
from tests.words import saying

WEIGHTS = bytes(range(256)) * 400  # 102,400 bytes
CONFIG = json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}).encode()
WHOLE = {"config.json": CONFIG, "tokenizer.json": b"{}", "model.safetensors": WEIGHTS, "README.md": b"#",
         "pytorch_model.bin": b"pickle", "modeling_own.py": b"import os", "onnx/model.safetensors": b"other"}
REPOS = {"org/whole": {"main": WHOLE},
         "org/pickle": {"main": {"config.json": CONFIG, "tokenizer.json": b"{}", "pytorch_model.bin": b"pickle"}},
         "org/scorer": {"main": WHOLE | {"config.json": b'{"architectures": ["LlamaForSequenceClassification"]}'}}}


def fetch(name: str, **more) -> Path:
    return hub_models.fetch(name, activity.report, **more)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1024)
    monkeypatch.setattr(hub_models, "LARGE", 1000)
    monkeypatch.setattr(hub_models, "MB", 1000)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return folder


@pytest.fixture
def point(cache, monkeypatch):
    """point(served) makes it the hub."""
    def pointed(served):
        turn_to(served, cache, monkeypatch)
        return served
    return pointed


@pytest.fixture
def hub(point):
    with serving(REPOS) as served:
        yield point(served)


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def partials(cache: Path) -> list[Path]:
    return [*cache.rglob("*.partial")]


def test_a_model_is_downloaded_without_pickles_and_code(hub, cache):
    heard = []
    with activity.listening(lambda words, done, total: heard.append((words, done, total))):
        folder = fetch("org/whole")
    assert names(folder) == {"config.json", "tokenizer.json", "model.safetensors"} and complete(folder)
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert folder.name == COMMIT and not partials(cache)
    words, done, total = zip(*heard, strict=True)
    assert {*words} == {"downloading org/whole: {} of {} MB"} and {*total} == {103}
    assert list(done) == sorted(done) and done[0] == 0 and done[-1] == 102 and len({*done}) > 50


def test_nothing_is_downloaded_twice(hub):
    folder = fetch("org/whole")
    hub.asked.clear()
    assert fetch("org/whole") == folder
    assert not [path for path in hub.asked if "/resolve/" in path]


def test_of_a_model_only_what_describes_it_may_be_wanted(hub):
    folder = fetch("org/whole", weights=False)
    assert names(folder) == {"config.json", "tokenizer.json"} and not complete(folder)
    assert here("org/whole") is None and not cached()


class Cancelled(BaseException):
    """What ends a process in the middle of a download."""


def cut_at(cache: Path, share: int) -> None:
    """Fetch, and leave once `share` kB are there."""
    def leave(words, done, total):
        if done >= share:
            raise Cancelled
    with pytest.raises(Cancelled), activity.listening(leave):
        fetch("org/whole")


def test_a_cancelled_download_goes_on_where_it_ended(hub, cache):
    cut_at(cache, 40)
    (partial,) = partials(cache)
    assert 39_000 < partial.stat().st_size < 42_000 and here("org/whole") is None and not cached()
    hub.sent.clear()
    folder = fetch("org/whole")
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS and not partials(cache)
    assert sum(size for path, size in hub.sent if path.endswith("model.safetensors")) < 64_000


def test_a_hub_that_breaks_off_is_asked_for_the_rest(point, cache):
    with serving(REPOS, breaks=30_000) as served:
        point(served)
        folder = fetch("org/whole")
        assert (folder / "model.safetensors").read_bytes() == WEIGHTS
        assert len([path for path in served.asked if path.startswith("GET") and "model.saf" in path]) == 4


def test_a_resumed_file_that_is_damaged_is_not_taken(hub, cache):
    cut_at(cache, 40)
    (partial,) = partials(cache)
    partial.write_bytes(b"x" * 40_000)
    with pytest.raises(LabError, match=saying("model.safetensors", "damaged", "download it")):
        fetch("org/whole")
    assert not partials(cache)
    assert complete(fetch("org/whole"))


def test_a_partial_file_that_is_too_long_is_begun_anew(hub, cache):
    cut_at(cache, 40)
    partials(cache)[0].write_bytes(WEIGHTS + b"x")
    assert complete(fetch("org/whole"))


def test_two_processes_download_a_file_once(hub):
    both = [threading.Thread(target=fetch, args=("org/whole",)) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join(20)
    assert here("org/whole")
    assert len([path for path in hub.asked if path.startswith("GET") and "/model.saf" in path]) == 1


@pytest.mark.parametrize("refuses, words", [
    ((403, "GatedRepo"), "The model org/whole is gated: accept its terms on https://huggingface.co/org/whole, then log "
                         r"in with: hf auth login \(or set HF_TOKEN\)"),
    ((401, "GatedRepo"), "The model org/whole is gated"),
    ((404, "RepoNotFound"), "The hub has no model 'org/whole' that is open to you: check the spelling, give a local"),
    ((503, ""), r"The hub refused to send org/whole \(HTTP 503\): try again later, or give a local folder")])
def test_a_hub_that_refuses_is_said(point, refuses, words):
    with serving(REPOS, refuses) as served:
        point(served)
        with pytest.raises(LabError, match=words) as error:
            fetch("org/whole")
    assert str(error.value).count(". ") == 0


def test_a_gated_model_of_which_only_the_list_is_open(point):
    with serving(REPOS, gated=True) as served:
        point(served)
        with pytest.raises(LabError, match="is gated: accept its terms on"):
            fetch("org/whole")


def test_a_model_with_pickles_only_is_refused_before_anything_is_downloaded(hub):
    with pytest.raises(LabError, match=r"no safetensors weights on the hub, only pickles \(pytorch_model.bin\)"):
        fetch("org/pickle")
    assert not [path for path in hub.asked if "tokenizer" in path]


def test_what_is_refused_by_its_configuration_is_not_downloaded(hub):
    def check(folder: Path) -> None:
        raise LabError("too large")

    with pytest.raises(LabError, match="too large"):
        fetch("org/whole", check=check)
    assert not [path for path in hub.asked if "safetensors" in path]


def test_a_disk_without_space_is_said_before_the_download(hub, cache, monkeypatch):
    monkeypatch.setattr(hub_models.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 60_000}))
    with pytest.raises(LabError, match=r"org/whole needs 102 kB more, and the disk of .* has 60.0 kB free: free some"):
        fetch("org/whole")
    assert not [path for path in hub.asked if "model.saf" in path]


def test_what_is_there_already_needs_no_space(hub, cache, monkeypatch):
    cut_at(cache, 80)
    monkeypatch.setattr(hub_models.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 40_000}))
    assert complete(fetch("org/whole"))


def test_a_disk_that_is_full_in_the_middle_is_said(hub, monkeypatch):
    def full(file, chunk):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(hub_models._Counted, "write", full)
    with pytest.raises(LabError, match=r"org/whole cannot be kept in .* \(No space left on device\): free some space, "
                                       "or set HF_HOME"):
        fetch("org/whole")


def test_offline_what_is_here_is_used_and_anything_else_is_said(hub, monkeypatch):
    folder = fetch("org/whole")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch("org/whole") == folder
    with pytest.raises(LabError, match=saying("HF_HUB_OFFLINE", "org/scorer", "unset it")):
        fetch("org/scorer")


def test_without_a_network_half_a_model_is_not_taken_for_one(point, cache):
    with serving(REPOS) as served:
        point(served)
        cut_at(cache, 40)
    with pytest.raises(LabError, match="The hub could not be reached for org/whole"):  # its port is closed
        fetch("org/whole")


def test_a_cache_that_another_tool_filled_is_used_offline(hub, monkeypatch):
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        hf_hub_download("org/whole", name)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert complete(fetch("org/whole"))


def test_a_name_that_is_none_is_said(hub):
    with pytest.raises(LabError, match="The hub has no model 'no such/thing'"):
        fetch("no such/thing")


def test_the_cache_lists_complete_models_that_write_text(hub):
    assert cached() == []
    for name in ("org/whole", "org/scorer"):
        fetch(name)
    (found,) = cached()
    assert (found.name, found.folder) == ("org/whole", here("org/whole"))
    assert found.bytes == len(WEIGHTS) + len(CONFIG) + 2


def test_a_model_in_several_files_is_complete_with_all_of_them(tmp_path):
    for name, content in (("config.json", CONFIG), ("tokenizer.json", b"{}"), ("model-1.safetensors", b""),
                          (hub_models.INDEX, json.dumps({"weight_map": {"a": "model-1.safetensors",
                                                                        "b": "model-2.safetensors"}}).encode())):
        (tmp_path / name).write_bytes(content)
    assert not complete(tmp_path)
    (tmp_path / "model-2.safetensors").touch()
    assert complete(tmp_path)


def test_the_etag_of_a_blob_is_its_hash(hub, cache):
    fetch("org/whole")
    assert hashlib.sha256(WEIGHTS).hexdigest() in {path.name for path in cache.rglob("blobs/*")}
