"""A shared file: what it shows of its runs, what it must not say, and that no text in it becomes markup."""

import gzip
import json
import re
import socket
from base64 import b64decode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser

import pytest

from app.share import content, document
from app.sharing import MOST_RUNS
from labcore.catalog.kinds import KINDS, kind
from labcore.errors import LabError
from labcore.runs.files.paths import home, run_folder
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from tests.app.seeding import samples, seed
from tests.llm.tools import unlike

ATTACK = '</script><img src=x onerror="alert(1)">'


def written(store, *run_ids: str) -> str:
    return document.of_runs(store, run_ids)


def data_of(page: str) -> dict:
    packed = re.search(r'id="data">([^<]+)<', page)
    assert packed
    return json.loads(gzip.decompress(b64decode(packed[1])))


class Tags(HTMLParser):
    """The tags of a page: [(name, attributes)]."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def meta(self, key: str) -> str | None:
        return next(attributes["content"] for tag, attributes in self.found
                    if tag == "meta" and key in attributes.values())


def put_samples(run_id: str, step: int, text: str) -> None:
    found = samples() | {"step": step}
    found["groups"][0]["completions"][1] |= {"text": text, "tokens": [text[:4], text[4:]]}
    for completion in found["groups"][0]["completions"][1:]:
        for key in ("logprobs", "old_logprobs", "ref_logprobs", "advantages", "entropy", "ratio", "kl", "cut"):
            completion[key] = completion[key][:2]
    (run_folder(run_id) / "samples" / f"step-{step:06d}.json").write_text(json.dumps(found))


def test_the_file_shows_the_rows_the_knobs_the_answers_the_tokens_and_the_settings(lab):
    run_id = seed(lab.store, "finished", seed=7)
    page = written(lab.store, run_id)
    [run] = data_of(page)["runs"]
    rows = run["charts"]["runs"][run_id]["rows"]
    assert [row[3]["reward"] for row in rows] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert [marker["text"] for marker in run["charts"]["markers"]] == ["β 0.04 → 0.2"]
    assert run["clock"]["marks"] == [[3, "β 0.04 → 0.2"]] and [3, "β 0.04 → 0.2"] in run["events"]
    [kept] = run["kept"]
    assert kept["step"] == 5 and kept["story"]["strips"][kept["story"]["telling"]]["prompt"] == "dbca="
    assert {side["text"] for inside in kept["tokens"]["inside"].values() for side in inside["sides"]} == {
        "abcd", "<b>é\n"}
    assert ["Seed", "7", ""] in run["settings"] and run["equation"].startswith("<div><math")
    beta = next(setting for setting in run["settings"] if setting[0] == "KL coefficient β")
    assert beta[1].startswith("0.04")
    tags = Tags(page)
    for key in ("description", "og:description"):
        assert "GRPO" in tags.meta(key) and "correct in 60 % (10 % at the start)" in tags.meta(key)
    assert tags.meta("og:title") == run["title"] and "Made with" in page


def test_scripts_run_by_their_hashes_and_nothing_is_loaded(lab):
    tags = Tags(page := written(lab.store, seed(lab.store, "finished")))
    policy = dict(part.strip().split(" ", 1) for part in tags.meta("Content-Security-Policy").split(";"))
    assert policy["default-src"] == "'none'" and "connect-src" not in policy
    assert not [value for value in policy.values() if "http" in value or "unsafe-eval" in value]
    plotly = gzip.decompress(b64decode(re.search(r'id="plotly">([^<]+)<', page)[1])).decode()
    assert "plotly.js" in plotly[:100] and page.count('id="plotly"') == 1
    script = page.rpartition('<script type="module">')[2].partition("</script>")[0]
    for text in (script, plotly):
        assert f"'sha256-{document.b64encode(sha256(text.encode()).digest()).decode()}'" in policy["script-src"]
    assert "unsafe-inline" not in policy["script-src"] and "import(" not in script
    loaded = [attributes.get(name) for _, attributes in tags.found for name in ("src", "srcset") if name in attributes]
    links = [attributes["href"] for tag, attributes in tags.found if tag == "link"]
    assert loaded == [] and links == ["data:,"]
    assert "url(http" not in page and "@import" not in page


def test_nothing_of_the_machine_and_no_secret_is_in_the_file(lab, monkeypatch):
    """Wherever a run can carry them: its environment, its spec, its events, its message, its host."""
    planted = {"HOME": "/home/planted-user", "LOGNAME": "planted-user", "USER": "planted-user",
               "RL_LAB_JUDGE_KEY": "sk-planted-judge", "AWS_SECRET_ACCESS_KEY": "planted-aws", "HF_TOKEN": "hf_planted"}
    for name, value in planted.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(socket, "gethostname", lambda: "planted-host")
    spec = make(algorithm_key="grpo", task_key="sort", steps=10)
    spec = replace(spec, model="/home/planted-user/models/mine", data="/srv/planted-disk/data/rows.jsonl",
                   knobs={**spec.knobs, "reward_model": "/srv/planted-disk/judge"})
    run_id = lab.store.create(spec, mine=True)
    lab.store.set_state(run_id, "running")
    lab.store.append(run_id, Record(1, 100, {"reward": 0.5, "kl": 0.0, "updates": 1.0}), 0.5)
    lab.store.log(run_id, "knob", {"knob": "reward_model", "from": "/srv/planted-disk/judge", "update": 0, "between": 0,
                                   "to": "http://planted-user:planted@planted-host/v1", "text": "planted"}, 1)
    for said in ("note", "unpublished", "failed"):
        lab.store.log(run_id, said, {"text": f"{said}: s3://planted-bucket on planted-host, {planted['HF_TOKEN']}"}, 1)
    lab.store.set_state(run_id, "failed", "planted-host: /home/planted-user/x is full, token hf_planted")
    page = written(lab.store, run_id)
    shown = page + json.dumps(found := data_of(page), ensure_ascii=False)
    assert "planted" not in shown and str(home()) not in shown
    settings = {name: value for name, value, _ in found["runs"][0]["settings"]}
    assert settings["Model"] == "mine" and settings["File"] == "rows.jsonl"
    [event] = found["runs"][0]["events"]
    assert event[0] == 1 and event[1].endswith("judge → (address)")


def test_the_comparison_names_settings_without_the_folders_of_the_machine(lab):
    runs = []
    for scorer in ("first", "second"):
        spec = make(algorithm_key="grpo", task_key="sort", steps=10)
        spec = replace(spec, knobs={**spec.knobs, "reward_model": f"/srv/planted/{scorer}"})
        runs.append(lab.store.create(spec, mine=True))
        lab.store.set_state(runs[-1], "running")
        lab.store.append(runs[-1], Record(1, 100, {"reward": 0.5, "kl": 0.0, "updates": 1.0}), 0.5)
    found = content.content(lab.store, runs)
    assert "planted" not in json.dumps(found) and "second" in found["together"]["table"]


def test_what_a_model_wrote_stays_text(lab):
    run_id = seed(lab.store, "finished")
    put_samples(run_id, 5, ATTACK)
    page = written(lab.store, run_id)
    assert ATTACK not in page and "onerror" not in page.replace("script.onerror", "")
    tokens = data_of(page)["runs"][0]["kept"][0]["tokens"]
    assert ATTACK in {side["text"] for inside in tokens["inside"].values() for side in inside["sides"]}
    assert [tag for tag, _ in Tags(page).found].count("script") == 3


def test_several_runs_are_over_each_other_with_their_comparison(lab):
    runs = [seed(lab.store, "finished"), seed(lab.store, "finished", algorithm="rloo", knobs={"beta": 0.1})]
    found = data_of(written(lab.store, *runs))
    together = found["together"]
    assert [*together["charts"]["runs"]] == runs and [run["id"] for run in found["runs"]] == runs
    hues = [run["colour"] for run in together["charts"]["runs"].values()]
    assert hues[0] != hues[1] and all(len(panel["metrics"]) == 1 for panel in together["charts"]["panels"])
    for part in ("GRPO and RLOO are equal", "40.0 %", "KL coefficient β", "Settings differ in"):
        assert part in together["table"], part


@pytest.mark.long
def test_a_file_of_200_steps_is_below_5_mb(lab):
    run_id = seed(lab.store, "finished", steps=200)
    for step in range(10, 201, 5):
        put_samples(run_id, step, f"answer {step} " * 20)
    page = written(lab.store, run_id)
    assert len(page.encode()) < 5_000_000
    kept = data_of(page)["runs"][0]["kept"]
    assert [kept[0]["step"], kept[-1]["step"]] == [5, 200] and len(kept) <= content.MOST_KEPT


@pytest.mark.parametrize("count, says", [(MOST_RUNS + 1, "up to 8 runs"), (1, "has made no step yet")])
def test_what_cannot_be_shared_is_said(lab, count, says):
    runs = [seed(lab.store, "starting") for _ in range(count)]
    with pytest.raises(LabError, match=says):
        content.content(lab.store, runs)


def test_every_equation_of_the_catalog_becomes_mathml():
    for each in KINDS.values():
        for row in each.algorithms.values():
            found = content.mathml(row.latex)
            assert "\\" not in found and "linebreak" not in found, row.key  # browsers break no line within MathML
            assert found.count("<div>") == 1 + row.latex.count("\\\\"), row.key


@pytest.mark.parametrize("key", unlike(kind("llm").algorithms.values()))
def test_a_run_of_every_sort_of_algorithm_can_be_shared(lab, key):
    run_id = seed(lab.store, "finished", steps=2, algorithm=key)
    found = content.content(lab.store, [run_id])
    assert found["runs"][0]["equation"].startswith("<div><math") and found["runs"][0]["kept"][0]["terms"]
