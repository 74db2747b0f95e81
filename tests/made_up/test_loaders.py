"""Whatever lies in a file that the lab reads, it is used or refused in one sentence: specs, capsules, mazes, what the
user made in the lab."""

import json
import shutil
import tomllib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.compare.launch import planning
from labcore.analysis.lessons import expression, folders, lesson, progress
from labcore.classic.envs import maze_text
from labcore.errors import LabError
from labcore.exports.capsules import packing, reading
from labcore.runs import mixes
from labcore.runs.files import adapters
from labcore.runs.files.jsonl import read_objects
from labcore.runs.files.paths import DRAFTS, LESSONS, MIXES, OWN_LESSONS, home, made, path_of
from labcore.runs.files.untrusted import NotJSON, json_of
from labcore.runs.imports.reading import parse
from labcore.runs.spec.run_spec import RunSpec, make
from labcore.runs.store.store import Store
from labcore.tasks import labels, votes
from tests.analysis.lessons.lesson_text import TEXT
from tests.exports.capsules.tools import content, faked, sealed
from tests.made_up.values import BYTES, VALUES, WORDS, answered, few, fewer

DEEP = ["[" * 200_000, '{"a":' * 5000]
SPEC = make(algorithm_key="grpo", task_key="sort")
MAZE = json.loads(maze_text.to_json(maze_text.from_rows(["S..", "#TG"])))
ATTEMPT = {"at": 1.0, "choice": 1, "curve": [], "sweep": "sweep-a", "says": "holds", "right": True, "seeds": 3}
MIX = {"name": "mine", "algorithm": "grpo", "knobs": {"beta": 0.1}}
PAIR = {"prompt": "a", "a": "b", "b": "c", "a_truncated": False, "b_truncated": True, "answer": "", "line": None}


def changed(whole):
    """`whole` with one of its fields, or of those within, being anything or not there."""
    fields = [(key,) for key in whole] + [(key, inner) for key, value in whole.items() if isinstance(value, dict)
                                          for inner in value]

    def change(place, value):
        copy = json.loads(json.dumps(whole))
        inner = copy
        for key in place[:-1]:
            inner = inner[key]
        if value is ...:
            del inner[place[-1]]
        else:
            inner[place[-1]] = value
        return copy
    return st.builds(change, st.sampled_from(fields), st.one_of(st.just(...), VALUES))


@few
@given(BYTES)
def test_any_bytes_as_json(text):
    try:
        json.dumps(json_of(text), ensure_ascii=False).encode()
    except NotJSON as error:
        assert len(str(error).splitlines()) == 1


@few
@given(changed(json.loads(SPEC.to_json())).map(json.dumps))
@example(DEEP[0])
@example(DEEP[1])
@example("null")
@example("[]")
def test_spec_json(text):
    spec = answered(RunSpec.from_json, text)
    if spec is not None:
        RunSpec.from_json(spec.to_json())


@pytest.fixture(scope="module")
def capsule(tmp_path_factory):
    folder = tmp_path_factory.mktemp("capsule")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_LAB_HOME", str(folder / "lab"))
        store = Store()
        return packing.write(store, faked(store, 3), folder / "run.capsule.zip")


def taken(path):
    """The capsule as far as it is read before it is run or kept."""
    with reading.unpacked(path) as capsule:
        return capsule.located("tiny", capsule.data)


def test_capsules(capsule, tmp_path):
    packed, sound = tmp_path / capsule.name, content(capsule)
    spec, manifest = (json.loads(sound[name]) for name in (packing.SPEC, packing.MANIFEST))
    files = st.sampled_from([packing.SPEC, packing.METRICS, packing.EVENTS, packing.KNOBS,
                             *(name for name in sound if name.startswith("samples/"))])
    event, cells = sound[packing.EVENTS].decode().splitlines(), st.lists(WORDS, min_size=4, max_size=4)
    tables = cells.map(lambda words: "\r\n".join([*event[:2], ",".join(
        f'"{word.replace(chr(34), "")}"' for word in words)]).encode("utf-8", "replace"))

    def look(files=None, **told):
        shutil.copy(capsule, packed)
        answered(taken, sealed(packed, files, **told))

    @fewer
    @given(changed(spec))
    @example(spec | {"knobs": spec["knobs"] | {"beta": 10**400}})
    @example(spec | {"seed": 10**400, "steps": -10**400, "threads": 10**400})
    def any_spec(fields):
        look({packing.SPEC: json.dumps(fields).encode()})

    @fewer
    @given(files, st.one_of(BYTES, tables))
    @example(packing.SPEC, DEEP[0].encode())
    @example(packing.EVENTS, event[0].encode() + b"\r\n" + b"1,2,note,[[[[[[[[[[[[\r\n")
    def any_file(name, text):
        look({name: text})

    @fewer
    @given(changed({key: value for key, value in manifest.items() if key != "files"}))
    def any_manifest(told):
        look(**({key: None for key in manifest if key != "files"} | told))

    @fewer
    @given(BYTES)
    def no_capsule(text):
        packed.write_bytes(text)
        answered(taken, packed)

    for holds in (any_spec, any_file, any_manifest, no_capsule):
        holds()


@few
@given(st.one_of(BYTES, changed(MAZE).map(json.dumps)))
@example(DEEP[0])
@example(json.dumps(MAZE | {"step_reward": 10**290}))
def test_mazes_in_files(text):
    maze = answered(maze_text.from_json, text)
    if maze is not None:
        assert maze_text.from_json(maze_text.to_json(maze)) == maze


@few
@given(st.one_of(WORDS, st.text("Sx.GTR~_0123456789-e.", max_size=40),
                 st.tuples(WORDS, WORDS).map(lambda ends: f"S.G_{ends[0]}_-1_{ends[1]}_0.9")))
def test_mazes_in_addresses(text):
    maze = answered(maze_text.from_text, text)
    if maze is not None:
        assert maze_text.from_text(maze_text.to_text(maze)) == maze


@few
@given(st.one_of(BYTES, changed({"mixes": [MIX]}).map(json.dumps), changed(MIX).map(
    lambda mix: json.dumps({"mixes": [MIX, mix]}))))
@example(DEEP[0].encode())
def test_saved_mixes(text):
    made(home())
    path = home() / MIXES
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = path.read_bytes()
    found = answered(mixes.saved)
    answered(mixes.find, "mine")
    assert path.read_bytes() == before
    for mix in found[0] if found else ():
        answered(make, algorithm_key=mix.algorithm, task_key="sort", knobs=mix.knobs, mix=mix.name)
    answered(mixes.save, mixes.Mix("another", "grpo", {}), True)
    if found is not None:
        assert [mix.name for mix in mixes.saved()[0]][:len(found[0])] == [mix.name for mix in found[0]]
    else:
        assert path.read_bytes() == before, "what cannot be read is never begun anew"


@few
@given(st.one_of(BYTES, changed({"lessons": {"clip": [ATTEMPT]}}).map(json.dumps), changed(ATTEMPT).map(
    lambda attempt: json.dumps({"lessons": {"clip": [ATTEMPT, attempt]}}))))
@example(DEEP[0].encode())
def test_progress_in_the_lessons(text):
    made(home())
    path = home() / LESSONS
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = path.read_bytes()
    found = answered(progress.attempts)
    answered(progress.newest, "clip")
    assert path.read_bytes() == before
    if found is None:
        answered(progress.predict, "clip", 1)
        assert path.read_bytes() == before, "what cannot be read is never begun anew"


@few
@given(st.lists(st.one_of(BYTES, changed({**PAIR, "pick": "a"}).map(lambda row: json.dumps(row).encode())), max_size=4))
@example([b'{"models": 3}', b'{"models": [1, "a"]}', b'{"chosen_model": []}'])
def test_labels_and_votes(lines):
    spec = make(algorithm_key="reward_model", task_key="reviews")
    path = labels.path(spec)
    for file in (path, votes.pairs_file(), votes.ties_file()):
        made(file.parent)
        file.write_bytes(b"\n".join(lines))
    rows = labels.rows(spec)
    labels.preferences(rows, [row["pick"] for row in rows])
    votes.tally("a", "b")
    whole = path.read_bytes()
    labels.add(spec, PAIR, "b")
    assert labels.rows(spec)[:-1] == rows and labels.rows(spec)[-1]["pick"] == "b"
    assert path.read_bytes().startswith(whole[:whole.rfind(b"\n") + 1]), "no line goes"


@few
@given(BYTES)
def test_files_of_the_user(text):
    made(home())
    for name, read in (("it.jsonl", lambda path: read_objects(path, lambda row, line: row)),
                       ("it.csv", lambda path: parse(path.name, path.read_bytes())),
                       (adapters.CONFIG, lambda path: adapters.base_of(path.parent))):
        path = home() / name
        path.write_bytes(text)
        answered(read, path)
    answered(lesson.parse, "it", text.decode("utf-8", "replace"))


def toml(value):
    """A value as TOML; a text for what TOML has no value for."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(str(value) if value is None else value).replace("NaN", "nan").replace("Infinity", "inf")


LESSON = {**tomllib.loads(TEXT.split("+++")[1]), "topic": "Mazes", "introduction": "Two methods.",
          "picture": ["reward"], "completions": ""}


@few
@given(st.one_of(changed(LESSON), changed({"run": LESSON["runs"][0]}).map(
    lambda run: LESSON | {"runs": [run.get("run"), LESSON["runs"][1]]})),
    st.sampled_from(["1979-05-27", "07:32:00", "x"]))
def test_lessons(fields, time):
    for told in (fields, fields | {"minutes": ...}):
        head = "\n".join(f"{json.dumps(key)} = {time if value is ... else toml(value)}" for key, value in told.items())
        answered(lesson.parse, "it", f"+++\n{head}\n+++\nText")


@few
@given(st.one_of(BYTES, changed({"drafts": {"new": TEXT, "new.before": TEXT}}).map(
    lambda kept: json.dumps(kept).encode())), WORDS)
@example(b"", "../x")
@example(b"", "con")
def test_drafts_and_names_of_lessons(kept, name):
    """A draft is never begun anew over a damaged file, and no name leads out of the folder of lessons."""
    folder = made(home() / OWN_LESSONS)
    path = home() / DRAFTS
    path.write_bytes(kept)
    if answered(folders.draft, folders.NEW) is None:
        answered(folders.keep_draft, folders.NEW, TEXT)
        assert path.read_bytes() == kept
    answered(folders.decoded, kept)
    before = {*home().rglob("*")}
    saved = answered(folders.save, name, TEXT)
    assert {*home().rglob("*")} - before == ({saved} if saved else set()) and (saved is None or saved.parent == folder)
    if saved:
        saved.unlink()


@few
@given(st.one_of(WORDS, st.lists(st.sampled_from([
    "(", ")", "-", "not ", "a.", "[", "{", "f(", "1", ",", '"', " and ", "lambda:", "max(q, ", '"reward")', ">", "**"]),
    max_size=30).map("".join)))
@example("(" * 300 + ")" * 300)
@example("-" * 600)
@example("not " * 150 + "1")
@example("a" + ".a" * 299)
@example("9" * 600)
def test_checks_of_lessons(text):
    check = answered(expression.parse, text, ["q"])
    assert check is None or check.reads


@few
@given(changed({"peft_type": "LORA", "base_model_name_or_path": "tiny"}).map(json.dumps))
@example(json.dumps({"peft_type": "LORA", "base_model_name_or_path": "x" * 300}))
def test_the_base_of_an_adapter(text):
    made(home())
    (home() / adapters.CONFIG).write_text(text)
    answered(adapters.base_of, home())


@few
@given(WORDS)
@example("ä" * 200)
@example("a/" * 3000)
def test_any_word_as_a_path(word):
    path = answered(path_of, word)
    if path is not None:
        path.exists(), path.is_dir(), path.is_file()


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("read", [
    lambda number: maze_text.from_json(f'{{"rows": ["SG"], "gamma": {number}}}'),
    lambda number: RunSpec.from_json(SPEC.to_json().replace('"beta": 0.04', f'"beta": {number}')),
    lambda number: planning.of_link(f'{{"low": {number}}}'),
    lambda number: _written(home() / MIXES, f'{{"mixes": [{{"knobs": {{"beta": {number}}}}}]}}', mixes.saved),
    lambda number: _written(home() / LESSONS, f'{{"attempts": {{"a": {number}}}}}', progress.attempts)])
def test_what_is_no_json_is_no_number_anywhere(read, number):
    made(home())
    with pytest.raises(LabError, match=rf"({number} is|damaged|[Cc]opy the link again)"):
        read(number)


def _written(path, text, read):
    path.write_text(text)
    return read()
