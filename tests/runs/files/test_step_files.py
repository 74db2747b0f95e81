"""The files of a run's steps: compressed where they are large, and read as any other."""

import gzip
import json
import random

import pytest

from labcore.runs.files import step_files
from labcore.runs.files.paths import run_folder
from labcore.runs.files.written import Damaged


def noise(step: int) -> str:
    """The JSON of a step, of some 700 kB, of which gzip leaves half."""
    rng = random.Random(step)
    return json.dumps({"step": step, "groups": [round(rng.gauss(), 15) for _ in range(36_000)]})


def test_a_large_file_is_compressed_and_read_as_any_other():
    folder, text = run_folder("a-run") / "samples", noise(5)
    path = step_files.write(folder, 5, text)
    assert path.name == "step-000005.json.gz" and path.stat().st_size < 0.6 * len(text)
    assert step_files.path_of("a-run", "samples", 5) == path and step_files.read(path, "") == json.loads(text)
    assert path.read_bytes() == gzip.compress(text.encode(), 1, mtime=0), "the same step is the same file"
    step_files.write(folder, 100, '{"step": 100}')
    assert step_files.steps_of("a-run", "samples") == [5, 100]


@pytest.mark.parametrize("text", ["x", "x" * step_files.LARGE])
def test_a_file_of_samples_begins_with_the_hashes_of_its_prompts(text):
    folder, groups = run_folder("a-run") / "samples", [{"prompt": "2 + 2 = "}, {"prompt": f"{chr(0xD800)}\n"}]
    content = {"step": 5, "groups": groups, "text": text}
    whole = step_files.write(folder, 5, json.dumps(step_files.with_prompts(content)))
    whole.write_bytes(whole.read_bytes()[:400])  # the rest is not read
    assert step_files.prompts_of(whole) == [step_files.prompt_hash(group) for group in groups]
    assert step_files.prompt_hash({"prompt": "\ufffd\n"}) == step_files.prompt_hash(groups[1]), "as it is written"
    for earlier in (content, {"step": 5}, {**content, step_files.PROMPTS: ["[" * 9_000]}, {"step": 5, "groups": "x"}):
        path = step_files.write(folder, 7, json.dumps(earlier))
        assert step_files.prompts_of(path) is None
    assert step_files.prompts_of(folder / "step-000009.json") is None
    assert step_files.with_prompts({"step": 5, "lines": 1}) == {"step": 5, "lines": 1}
    many = [{"prompt": str(place)} for place in range(10_000)]
    path = step_files.write(folder, 7, json.dumps(step_files.with_prompts({"step": 7, "groups": many})))
    assert step_files.prompts_of(path) is None, "too many for the beginning: the file is read whole"


def test_a_step_that_is_made_again_has_one_file():
    folder = run_folder("a-run") / "samples"
    for text in (noise(5), '{"step": 5}', noise(5)):
        path = step_files.write(folder, 5, text)
        assert step_files.found(folder) == [path] and step_files.read(path, "") == json.loads(text)


def test_the_order_is_that_of_the_steps_and_other_files_are_none():
    folder = run_folder("a-run") / "samples"
    folder.mkdir(parents=True)
    for name in ("step-1000000.json", "step-999999.json.gz", "step-000005.json", ".5.part", "step-1.json",
                 "step-x.json", "step-000007.json.part"):
        (folder / name).write_text("{}")
    assert [path.name for path in step_files.found(folder)] == [
        "step-000005.json", "step-999999.json.gz", "step-1000000.json"]


@pytest.mark.parametrize("content", [gzip.compress(b'{"step": 5}' * 99, mtime=0)[:-30], b"\x1f\x8bno", b"[1]",
                                     b'{"step": "5"}', b"{", gzip.compress(b"[]", mtime=0)])
def test_a_file_that_no_worker_wrote_is_damaged(tmp_path, content):
    path = tmp_path / "step-000005.json.gz"
    path.write_bytes(content)
    with pytest.raises(Damaged, match=r"step-000005\.json\.gz is damaged .*: "):
        step_files.read(path, "the page skips this step")


def test_a_file_is_unpacked_no_further_than_it_may_be_long(tmp_path, monkeypatch):
    monkeypatch.setattr(step_files, "LONGEST", 10_000)
    path = tmp_path / "step-000005.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"step": 5, "text": "x" * 20_000}).encode()))
    with pytest.raises(Damaged, match="unpacks to more"):
        step_files.read(path, "")
