"""Files of data that say anything: CSV of other tools, and JSON lines and texts to learn from. They are read, or
refused in one sentence."""

import csv
import gzip
import io
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from labcore.catalog.llm.tasks import TASKS
from labcore.errors import LabError
from labcore.runs.files import jsonl
from labcore.runs.imports.reading import parse
from labcore.tasks.task import make_task

few = settings(max_examples=30, deadline=None, derandomize=True, database=None)
ENDS = st.sampled_from(["\n", "\r\n", "\r", "\n\n"])
CELLS = st.one_of(st.text(max_size=6), st.integers().map(str), st.floats().map(repr), st.sampled_from(
    ["", "nan", "-inf", "1e999", "0x10", "1_0", "٣", "\0", "'=1", "true", "9" * 400, '"', "1,5"]))
HEADERS = st.one_of(st.sampled_from(["step", "Step", "reward", "kl", "loss", "tokens", "updates", "_step", "seconds",
                                     "a - reward", "b - reward", "a - train/kl", "=1", "reward__MIN", "",
                                     " - "]), CELLS)
MARKS = st.sampled_from(["", "\ufeff"])


def refused(call, *given):
    """What `call` returns; None where it refuses in one sentence."""
    try:
        return call(*given)
    except LabError as error:
        assert str(error) and len(str(error).splitlines()) == 1 and len(str(error)) < 1000, str(error)
        return None


@st.composite
def tables(draw):
    """A CSV, mostly with steps, whose columns may be called alike."""
    header = draw(st.lists(HEADERS, min_size=1, max_size=5))
    lines = draw(st.lists(st.lists(CELLS, min_size=len(header), max_size=len(header)), max_size=4))
    if draw(st.booleans()):
        header = ["step", *header]
        lines = [[str(draw(st.integers(0, 3))), *line] for line in lines]
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=draw(st.sampled_from(",;\t")), lineterminator=draw(ENDS)).writerows([header, *lines])
    return (draw(MARKS) + text.getvalue()).encode("utf-8", draw(st.sampled_from(["replace", "surrogatepass"])))


NUMBERS = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.just(10**300), st.just("nan"),
                    st.lists(st.integers(), max_size=1))
LOGS = st.lists(st.dictionaries(st.sampled_from(["step", "reward", "data", "kl", "time/iterations", "r", "l", "t"]),
                                st.one_of(NUMBERS, st.dictionaries(st.sampled_from(["reward", "step"]), NUMBERS)),
                                max_size=4), max_size=4).flatmap(lambda rows: st.sampled_from(
                                    ["\n".join(map(json.dumps, rows)).encode(), json.dumps(rows).encode(),
                                     json.dumps({"log_history": rows}).encode()]))


@few
@given(st.one_of(tables(), tables().map(gzip.compress), LOGS, st.binary(max_size=60), st.builds(
    bytes.__add__, st.sampled_from([b"PAR1", b"\x1f\x8b", b"{", b"[", b"#", b"sep=", b'{"step": 1}\n']),
    st.binary(max_size=40))))
@example(b'{"step": 1, "data": {"reward": null}}\n{"log_history": {}}')
@example(b'{"log_history": [{"step": 1, "reward": 1e999}, {}]}')
@example(b'[{"step": true, "reward": {"step": [1]}}]')
@example(b"step,reward,reward\n1,2,3\n1,,4\n")
@example(b"step,step,a - reward\n1,2,3\n")
@example(b"step,reward\r1,2\r")
@example(b"\xef\xbb\xbfstep,reward\n1,\xff\n")
@example(b"step,reward\n\x00,1\n")
@example(b"step,reward\n1e15,1\n")
@example("step,reward\n1,٣\n".encode())
def test_metrics_of_other_tools(content):
    for run in refused(parse, "m.csv", content) or ():
        steps, rows = run.columns["step"].tolist(), [*run.steps()]
        assert steps == sorted(set(steps)) and len(rows) == len(steps) > 0
        assert all(type(value) is float for row in rows for value in row.metrics.values())
        assert all(run.columns[key].size == len(steps) for key in run.columns)


VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.just("\ud800"),
                   st.lists(st.integers(), max_size=2), st.just(10**300))
OBJECTS = st.dictionaries(st.sampled_from(["prompt", "question", "answer", "chosen", "rejected", "more"]), VALUES,
                          max_size=4).map(json.dumps)
LINES = st.one_of(OBJECTS, st.sampled_from(
    ['{"prompt": "a", "prompt": "b", "answer": "c", "chosen": "d", "rejected": "e"}', "[" * 3000, "9" * 5000, "NaN",
     "{", "", "\0", '{"prompt": "\\ud800", "answer": ""}', '{"prompt": 1e999, "answer": NaN}']), st.text(max_size=8))
FILES = st.one_of(st.binary(max_size=60), st.builds(
    lambda mark, lines, end: (mark + end.join(lines)).encode("utf-8", "surrogatepass"), MARKS,
    st.lists(LINES, max_size=4), ENDS))


@pytest.mark.parametrize("task", ["prompts", "preferences", "text"])
def test_data_to_learn_from(task, tmp_path):
    path, knobs = tmp_path / "mine.jsonl", {knob.key: knob.default for knob in TASKS[task].knobs}

    @few
    @given(FILES)
    def one(content):
        path.write_bytes(content)
        made = refused(make_task, TASKS[task], knobs, path)
        assert made is None or made.size > 0
    one()


def test_a_line_that_is_too_long_is_never_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(jsonl, "LINE_LIMIT", 2**20)
    monkeypatch.setattr(jsonl, "_object", lambda *_, **__: pytest.fail("it was read"))
    path = tmp_path / "long.jsonl"
    path.write_bytes(b'{"prompt": "' + b"x" * 2**20 + b'"}\n')
    with pytest.raises(LabError, match=r"Line 1 of long\.jsonl is longer than 1 MB: write one JSON object"):
        jsonl.read_objects(path, lambda value, line: value)
