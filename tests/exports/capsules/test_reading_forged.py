"""Run capsules from anybody: never believed before they are checked, and refused in a sentence."""

import csv
import io
import json
import random
import re
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from labcore.analysis.doctor import doctor
from labcore.errors import LabError
from labcore.exports.capsules import packing, reading, unzipping
from tests.every import now
from tests.exports.capsules.tools import content, faked, refused, rewritten, sealed
from tests.words import says


def test_what_is_no_capsule(packed, tmp_path):
    assert "There is no file" in refused(tmp_path / "none.zip")
    assert "is a folder" in refused(tmp_path)
    (tmp_path / "text.zip").write_text("hello")
    assert "not a whole zip file" in refused(tmp_path / "text.zip")
    assert "holds no manifest.json" in refused(rewritten(tmp_path / "x.zip", {"a.txt": b"a"}))
    assert "is not JSON" in refused(rewritten(tmp_path / "x.zip", {"manifest.json": b"{"}))
    assert "is not JSON" in refused(rewritten(tmp_path / "x.zip", {"manifest.json": b"[" * 100_000}))
    assert "not a run capsule's" in refused(rewritten(tmp_path / "x.zip", {"manifest.json": b"[]"}))
    assert "not a run capsule's" in refused(sealed(packed, format="a cake"))


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 0.99])
def test_a_capsule_that_was_cut_off(packed, share):
    text = packed.read_bytes()
    packed.write_bytes(text[:int(len(text) * share)])
    assert "copy it again" in refused(packed)


def test_another_version(packed):
    assert "version 2, and this lab reads version 1" in refused(sealed(packed, version=2))


def test_a_wrong_hash(packed):
    files = content(packed)
    files["metrics.csv"] = files["metrics.csv"].replace(b"1", b"2", 1)
    assert "metrics.csv in run.capsule.zip was changed" in refused(rewritten(packed, files))


def test_a_damaged_byte(packed):
    with zipfile.ZipFile(packed) as archive:
        entry = archive.getinfo("metrics.csv")
    text = bytearray(packed.read_bytes())
    text[entry.header_offset + 30 + len("metrics.csv") + entry.compress_size // 2] ^= 0xFF
    packed.write_bytes(text)
    assert "run.capsule.zip" in refused(packed)


def test_missing_and_extra_files(packed):
    files = content(packed)
    without = {name: text for name, text in files.items() if name != "events.csv"}
    assert "'events.csv' is missing" in refused(rewritten(packed, without))
    assert "'evil.txt' is not in its manifest" in refused(rewritten(packed, files | {"evil.txt": b"x"}))
    rewritten(packed, files)
    assert "'evil.py' is no part of a capsule" in refused(sealed(packed, {"evil.py": b"x"}))
    rewritten(packed, files)
    assert "'metrics.csv' is missing" in refused(sealed(packed, {"metrics.csv": None}))


@pytest.mark.parametrize("text", [b"[]", b"{}", b'{"step": "many"}', b"{"])
def test_samples_that_make_no_sense(packed, text):
    assert "is not a sound capsule" in refused(sealed(packed, {"samples/step-000025.json": text}))


def test_a_lost_first_checkpoint(packed):
    gone = {name: None for name in content(packed) if name.startswith("checkpoints/step-000000")}
    assert says(refused(sealed(packed, gone)), "checkpoint", "began with", "missing")


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "checkpoints/../../evil", "a\\..\\evil", "C:evil", "a//b",
                                  "./evil", "evil\n", "data/"])
def test_names_that_lead_elsewhere(packed, name, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    files = content(packed)
    assert "is not a plain path within it" in refused(rewritten(packed, files | {name: b"x"}))
    rewritten(packed, files)
    assert "is not a plain path within it" in refused(sealed(packed, {name: b"x"}))
    assert sorted(tmp_path.rglob("*")) == before and not Path("/etc/evil").exists()


@pytest.mark.parametrize("name", ["spec.json", "SPEC.json"])
def test_a_name_that_is_there_twice(packed, name):
    with pytest.warns(UserWarning) if name == "spec.json" else io.StringIO(), zipfile.ZipFile(packed, "a") as archive:
        archive.writestr(name, b"{}")
    assert "is in it twice" in refused(packed)


def test_links_and_locks(packed):
    files = content(packed)
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o120777 if name == "spec.json" else 0o644) << 16
            archive.writestr(info, text)
    assert "'spec.json' is a link" in refused(packed)
    text = rewritten(packed, files).read_bytes()
    at = text.rindex(b"PK\x01\x02")
    packed.write_bytes(text[:at + 8] + b"\x01" + text[at + 9:])  # the flag that says: encrypted
    assert "is encrypted" in refused(packed)


def test_bombs(packed, monkeypatch):
    with reading.unpacked(packed):
        pass
    bomb = sealed(packed, {"checkpoints/step-000000/zeros": bytes(32 * 2**20)})
    assert re.search(r"it would unpack to 32\.\d MiB from 0\.\d\d MiB", refused(bomb))
    monkeypatch.setattr(unzipping, "LARGEST", 1000)
    assert "it would unpack to" in refused(packed)
    monkeypatch.setattr(unzipping, "MOST_FILES", 3)
    assert re.search(r"it holds \d\d files", refused(packed))


@pytest.mark.parametrize("file, limit, most", [
    ("manifest.json", "TEXT_BYTES", 100), ("spec.json", "TEXT_BYTES", 20_000), ("events.csv", "TABLE_BYTES", 100),
    ("samples/step-000030.json", None, 2**24), ("data/mine.txt", None, 2**26)])
def test_each_file_has_its_limit(packed, monkeypatch, file, limit, most):
    if limit:
        monkeypatch.setattr(unzipping, limit, {file: most} if limit == "TABLE_BYTES" else most)
    monkeypatch.setattr(unzipping, "MOST_SHRUNK", 10**9)
    larger = {} if file in ("manifest.json", "events.csv") else {file: bytes(most + 1)}
    assert f"{file!r} has " in refused(sealed(packed, larger))


def test_all_there_is_to_look_at_has_a_limit(packed, monkeypatch):
    text = b'{"step": 1}'
    there = {name: each for name, each in content(packed).items() if name.split("/")[0] in packing.SEEN}
    monkeypatch.setattr(packing, "MOST_SEEN", sum(map(len, there.values())) + len(text))
    with reading.unpacked(sealed(packed, {"samples/step-000901.json": text})):
        pass
    sealed(packed, {"samples/step-000902.json": text})
    assert "its samples and lines have 0 MiB, more than 0" in refused(packed)


def test_a_file_that_is_a_folder_too(packed):
    assert "'checkpoints/step-000000/a' is a file and a folder" in refused(sealed(packed, {
        "checkpoints/step-000000/a": b"", "checkpoints/step-000000/A/b": b""}))


def test_a_full_disk_is_foreseen(packed, monkeypatch):
    monkeypatch.setattr(unzipping.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10}))
    assert "free some space" in refused(packed)


def test_manifests_that_make_no_sense(packed):
    files = content(packed)
    told = json.loads(files["manifest.json"])
    for key, value in (("run", "../../x"), ("run", "votes."), ("run", ".."), ("run", "x" * 300), ("state", "sleeping"),
                       ("step", "many"), ("made_with", [3]), ("files", []), ("left_out", None)):
        broken = files | {"manifest.json": json.dumps(told | {key: value}).encode()}
        assert "is not a sound capsule" in refused(rewritten(packed, broken)), key
    rewritten(packed, files)
    assert "does not end with step 26" in refused(sealed(packed, step=26))


@pytest.mark.parametrize("key", ["created", "started", "ended"])
@pytest.mark.parametrize(("time", "words"), [
    (float("nan"), "NaN is no value of JSON"), (float("inf"), "Infinity is no value of JSON"),
    *[(time, "no proper times") for time in (1e300, 10**290, -1, True, "now")]])
def test_times_that_no_clock_shows(packed, key, time, words):
    assert words in refused(sealed(packed, **{key: time}))


@pytest.mark.parametrize("left_out", [{"checkpoint": "step-000000"}, {"checkpoint": "a", "bytes": "3", "weights": {}},
                                      {"checkpoint": "a", "bytes": 3, "weights": "w"}])
def test_what_was_left_out_is_told_in_full(packed, left_out):
    assert "no proper 'left_out'" in refused(sealed(packed, left_out=left_out))


def test_versions_that_count_from_no_step(packed):
    assert "no proper 'made_with'" in refused(sealed(packed, made_with=[{"from": "3"}]))


@pytest.mark.parametrize("change, words", [
    ({"data": "/etc/passwd"}, "names a file outside"), ({"data": "../x"}, "names a file outside"),
    ({"data": "data/none"}, "names a file outside"), ({"kind": ["llm"]}, "not a run's spec.json"),
    ({"parent": ["../x", 3]}, "not a run's spec.json"), ({"parent": 3}, "not a run's spec.json"),
    ({"knobs": 3}, "not a run's spec.json"), ({"what": 1}, "not a run's spec.json")])
def test_specs_that_make_no_sense(packed, change, words):
    spec = json.loads(content(packed)["spec.json"])
    assert words in refused(sealed(packed, {"spec.json": json.dumps(spec | change).encode()}))


@pytest.mark.parametrize("change, words", [
    ({"algorithm": "alchemy"}, "no algorithm 'alchemy'"), ({"task": "x"}, "no task 'x'"), ({"kind": "y"}, "no kind"),
    ({"knobs": {"beta": 1e9}}, "outside its bounds"), ({"knobs": {"magic": 1}}, "no knob 'magic'"),
    ({"steps": 0}, "steps must be"), ({"threads": "many"}, "threads must be"), ({"device": "abacus"}, "no device")])
def test_specs_are_checked_as_if_typed_in(packed, change, words):
    spec = json.loads(content(packed)["spec.json"])
    sealed(packed, {"spec.json": json.dumps(spec | change).encode()})
    with reading.unpacked(packed) as found, pytest.raises(LabError, match=words):
        found.located("tiny", None)


@pytest.mark.parametrize("table, words", [
    (b"", "is no table"), (b"step,tokens,seconds\n1,2\n", "is no table"), (b"step,tokens\n1,2\n", "has no column"),
    (b"step,tokens,seconds,magic\n1,2,3,4\n", "the metric 'magic', which this lab does not know"),
    (b"step,tokens,seconds,reward\n1,2,3,NaN\n", "'NaN' in its tables is no number"),
    (b"step,tokens,seconds,reward\n1,2,3,true\n", "'true' in its tables is no number"),
    (b"step,tokens,seconds,reward\n1,2,3,x\n", "is no number"), (b"step,tokens,seconds\n1.5,2,3\n", "count its steps"),
    (b"step,tokens,seconds\n1,1%s,3\n" % (b"0" * 30), "is beyond 2**53"),
    (b"step,tokens,seconds\n1%s,1,3\n" % (b"0" * 290), "is beyond 2**53"),
    (b"step,tokens,seconds,reward\n1,2,3,-1%s\n" % (b"0" * 290), "is beyond 2**53"),
    (b"step,tokens,seconds\n1,1,1e300\n", "count its seconds"),
    (b"step,tokens,seconds\n2,2,3\n1,2,3\n", "count its steps"), (b"step,tokens,seconds\n1,2,3\n", "end with step 25"),
    (b"\xff\xfe", "is not UTF-8")])
def test_metrics_that_make_no_sense(packed, table, words):
    assert words in refused(sealed(packed, {"metrics.csv": table}))


@pytest.mark.parametrize("line", ['1,0.0,knob,,"{}"', "1,0.0,knob,,[]", "x,0.0,a,,{}", "1,0.0,<b>,,{}", "1,0,a,,{",
                                  "-1,0.0,a,,{}", "1,1e300,a,,{}", '1,0.0,failed,,"{""text"": 5}"', "1,-1,a,,{}",
                                  '1,0.0,knob,,"{""knob"": ""beta"", ""update"": 0, ""between"": 0, ""to"": NaN}"',
                                  '1,0.0,knob,,"{""knob"": ""beta"", ""update"": 0, ""between"": 0, ""to"": 1%s}"'
                                  % ("0" * 400),
                                  '1,0.0,knob,,"{""knob"": ""beta"", ""update"": 0, ""between"": 7, ""to"": 1}"',
                                  '1,0.0,refused,,"{""knob"": ""beta"", ""update"": ""x"", ""between"": 0}"'])
def test_events_that_make_no_sense(packed, line):
    table = f"step,time,kind,text,payload\n{line}\n"
    assert "is not a sound capsule" in refused(sealed(packed, {"events.csv": table.encode()}))


VERDICT = {"rule": "kl_runaway", "holds": True, "verdict": "Far", "evidence": "KL 2", "fix": "A lower rate.",
           "knob": "beta", "value": 0.1, "severity": "problem", "text": "Far: KL 2"}


def with_verdict(packed: Path, **changed: object) -> Path:
    """The capsule with one event of the doctor; what is changed to `...` is left out."""
    payload = json.dumps({key: value for key, value in (VERDICT | changed).items() if value is not ...})
    quoted = payload.replace('"', '""')
    return sealed(packed, {"events.csv": f'step,time,kind,text,payload\n1,0.0,doctor,,"{quoted}"\n'.encode()})


@pytest.mark.parametrize("changed", [
    {"rule": ...}, {"rule": ["x"]}, {"holds": 1}, {"holds": ...}, {"severity": "fatal"}, {"severity": ["x"]},
    {"verdict": None}, {"evidence": 3}, {"fix": ...}, {"knob": {}}, {"value": [1]}, {"value": ...}, {"value": 10**290},
    {"began": "x"}, {"began": True}, {"began": -1}, {"began": None}])
def test_verdicts_that_make_no_sense(packed, changed):
    assert "line 1 of its events.csv is no event" in refused(with_verdict(packed, **changed))


@pytest.mark.parametrize("changed", [{}, {"value": None}, {"value": "loss"}, {"began": 7}, {
    **dict.fromkeys(VERDICT, ...), "rule": "kl_runaway", "holds": False, "text": "passed: kl runaway"}])
def test_verdicts_that_the_doctor_reads(packed, changed):
    with reading.unpacked(with_verdict(packed, **changed)) as found:
        assert len(doctor.said(found.events)) == 1


def test_a_long_cell_is_read_whatever_was_imported_before(packed):
    csv.field_size_limit(128 * 1024)
    payload = json.dumps(json.dumps({"text": "x" * 200_000}))[1:-1].replace('\\"', '""')
    table = f'step,time,kind,text,payload\n1,0.0,failed,,"{payload}"\n'
    with reading.unpacked(sealed(packed, {"events.csv": table.encode()})) as found:
        assert len(found.events[0].payload["text"]) == 200_000


ROWS, EVENTS = b"step,tokens,seconds\n", b"step,time,kind,text,payload\n"
MANY = 200_000  # blank lines, rows, events or values: small beside what an attacker sends, large beside the limit here


@pytest.mark.parametrize("share", now([unzipping.MOST_SHRUNK, 10**9], 10**9),
                         ids=["as it is", "however far it unpacks"])
@pytest.mark.parametrize("files, words", [
    ({"metrics.csv": ROWS + b"\n" * MANY * 40}, "is no table"),
    ({"metrics.csv": ROWS + b"1,1,1\n" + b"\n" * MANY * 40}, "is no table"),
    ({"metrics.csv": ROWS + b"".join(b"%d,1,1\n" % step for step in range(1, MANY))}, "does not end with step 25"),
    ({"metrics.csv": ROWS + b"1,1,1\n" * MANY}, "count its steps"),
    ({"metrics.csv": b"step,step,tokens,seconds"}, "no table"),
    ({"metrics.csv": b"," * MANY * 20}, "without end"), ({"metrics.csv": b"1" * MANY * 40}, "without end"),
    ({"events.csv": EVENTS + b"\n" * MANY * 20}, "is no table"),
    ({"events.csv": EVENTS + b'"' + b"\n" * MANY * 5}, "without end"),
    ({"events.csv": EVENTS + b'1,0.0,note,,"{""a"": [' + b"[]," * MANY * 4 + b'[]]}"\n'}, "values"),
    ({"samples/step-000001.json": b'{"step": 1, "a": [' + b"[]," * MANY * 6 + b"[]]}"}, "values"),
    ({"samples/step-000001.json": b"[" * MANY}, "not JSON that can be read"),
    ({"spec.json": b'{"knobs": [' + b"[]," * MANY * 2 + b"[]]}"}, "values")])
def test_little_is_read_of_a_small_capsule_that_would_become_large(packed, files, words, share, monkeypatch):
    """The memory counts, and not the time: what is neither read nor kept takes none."""
    sealed(packed, files)
    monkeypatch.setattr(unzipping, "MOST_SHRUNK", share)
    tracemalloc.start()
    try:
        said = refused(packed)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert words in said or (share < 10**9 and "it would unpack to" in said)
    assert peak < 3 * max(map(len, files.values())) + 12 * 2**20, f"{peak / 2**20:.0f} MiB"


@pytest.mark.parametrize("column", ["metrics.csv", "events.csv"])
def test_a_table_has_only_so_many_cells(packed, column, monkeypatch):
    monkeypatch.setattr(packing, "MOST_CELLS", 25 * 11)
    rows = ROWS + b"".join(b"%d,1,1\n" % step for step in range(1, 26))
    tables = {"metrics.csv": rows, "events.csv": EVENTS + b"1,0.0,note,,{}\n" * 5}
    with reading.unpacked(sealed(packed, tables)):
        pass
    tables = {"metrics.csv": rows.replace(b"seconds", b"seconds,reward").replace(b",1\n", b",1,1\n"),
              "events.csv": EVENTS + b"1,0.0,note,,{}\n" * 25}
    assert f"its {column} has more than 275 cells" in refused(sealed(packed, {column: tables[column]}))


def test_a_list_of_files_is_not_read_without_end(packed, monkeypatch):
    with zipfile.ZipFile(packed, "a") as archive:
        for number in range(3000):
            archive.writestr(f"{number:0200d}", b"")
    monkeypatch.setattr(unzipping, "DIRECTORY_BYTES", 2**19)
    assert "its list of files has more than" in refused(packed)


def test_files_that_share_their_bytes_count_by_what_they_unpack_to(packed):
    """The entries of a list may all name one place: their packed sizes then add up to more than there is."""
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("checkpoints/step-000000/a", random.Random(0).randbytes(2**16) + bytes(2**21))
        first = archive.getinfo("checkpoints/step-000000/a")
        for number in range(90):
            other = zipfile.ZipInfo(f"checkpoints/step-000000/{number}")
            for name in ("header_offset", "CRC", "compress_size", "file_size", "compress_type"):
                setattr(other, name, getattr(first, name))
            archive.filelist.append(other)
            archive.NameToInfo[other.filename] = other
    assert "it would unpack to 18" in refused(packed)  # of which each entry by itself would pass


@pytest.mark.parametrize("how", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compression_that_takes_memory_of_its_own(packed, how):
    files = content(packed)
    with zipfile.ZipFile(packed, "w", how) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    assert "is compressed in another way than the lab does" in refused(packed)


def test_what_a_reader_would_not_take_is_not_packed(store, tmp_path, monkeypatch):
    run_id = faked(store)
    monkeypatch.setattr(packing, "MOST_CELLS", 25 * 5)
    monkeypatch.setattr(store, "steps_after", lambda *_: pytest.fail("the rows were read"))
    with pytest.raises(LabError, match=r"has 25 rows of \d+ numbers, too many for a capsule: export it"):
        packing.write(store, run_id, tmp_path / "run.zip")
    assert not (tmp_path / "run.zip").exists()
