"""Files of data that say anything: CSV of other tools, and JSON lines and texts to learn from. They are read, or
refused in one sentence."""

import csv
import io
import json
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from labcore.catalog.llm.tasks import TASKS
from labcore.compare import foreign
from labcore.errors import LabError
from labcore.files import jsonl
from labcore.tasks.task import make_task

few = settings(max_examples=60, deadline=None, derandomize=True, database=None)
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


@few
@given(st.one_of(tables(), st.binary(max_size=60)))
@example(b"step,reward,reward\n1,2,3\n1,,4\n")
@example(b"step,reward\r1,2\r")
@example(b"\xef\xbb\xbfstep,reward\n1,\xff\n")
@example(b"step,reward\n\x00,1\n")
@example(b"step,reward\n1e15,1\n")
@example("step,reward\n1,٣\n".encode())
def test_metrics_of_other_tools(content):
    for run in refused(foreign.parse, "m.csv", content) or ():
        steps = run.columns["step"].tolist()
        assert steps == sorted(set(steps)) and len(run.rows) == len(steps) > 0
        assert all(math.isfinite(value) for row in run.rows for value in row.metrics.values())
        assert all(run.columns[key].size == len(steps) for key in run.columns)


def test_of_columns_that_are_called_alike_the_first_is_read():
    (run,) = foreign.parse("m.csv", b"step,reward,reward\n1,2,3\n1,,4\n2,0,5\n")
    assert [row.metrics["reward"] for row in run.rows] == [2, 0]


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
