"""The story strip: which prompt it shows, in which words, and what it reads of a run's files."""

import json
import sys
from math import exp, log

import pytest

from app.llm import history, sample_age, story
from app.llm.probes import OFF
from app.llm.step_groups import groups_of, of_batch
from app.llm.story_words import sentence
from app.training import files
from labcore.runs.files import step_files
from labcore.runs.files.paths import run_folder
from labcore.watch.converting.chat import prompt_fields
from tests.app.seeding import link, samples, seed
from tests.words import says


def answer(text, before=None, after=None, *, exact=False, count=0, reward=None, advantage=None, **more):
    logprobs = [value and log(value) for value in (before, after)]
    return {"text": text, "truncated": False, "exact": exact, "count": count, "reward": reward, "advantage": advantage,
            "before": before, "after": after, "logprob_before": logprobs[0], "logprob_after": logprobs[1], **more}


def group(prompt="ba=", right=4, before=0.31, after=0.47):
    """Eight samples, `right` of them right."""
    wrong = 8 - right
    return {"prompt": prompt, "answer": "ab", "answers": [
        answer("ab", before, after, exact=True, count=right, reward=1.0 if right else None,
               advantage=(wrong and 0.9) if right else None),
        answer("bb", 0.2, 0.15, count=wrong, reward=0.0 if wrong else None,
               advantage=(right and -0.9) if wrong else None)]}


def pair(**changes):
    sides = {"chosen": (1e-30, 2e-30), "rejected": (1e-20, 5e-21)} | changes
    return {"prompt": "hello", "answer": "", "margin_before": 0.1, "margin_after": 0.35, "answers": [
        answer(role, *sides[role], exact=None, role=role) for role in ("chosen", "rejected")]}


@pytest.mark.parametrize("shown, words", [
    (group(), ("4 of 8", "right one rises from 31 % to 47 %", "wrong ones falls")),
    (group(right=1), ("1 of 8", "right one rises from 31 % to 47 %", "wrong ones falls")),
    (group(right=8), ("All 8", "same reward", "no gradient", "right one rises from 31 % to 47 %.")),
    (group(right=0, after=0.2), ("All 8", "no gradient", "right one falls from 31 % to 20 %", "wrong ones falls")),
    (group(after=0.3101), ("4 of 8", "right one stays at 31 %", "wrong ones falls")),
    ({"answers": [answer("bb", 0.2, 0.1, count=1, reward=0.0, advantage=0.0)]}, ("one answer", "wrong")),
    (pair(), ("margin grows from 0.10 to 0.35", "chosen becomes likelier", "rejected less likely")),
    (pair(chosen=(0.2, 0.1)), ("margin grows from 0.10 to 0.35", "both become less likely")),
    (pair() | {"margin_after": 0.05}, ("margin shrinks from 0.10 to 0.05", "chosen becomes likelier", "rejected less")),
])
def test_a_sentence_says_what_happened_with_its_numbers(shown, words):
    assert says(sentence(shown), *words)


def of_logprobs(text, before, after, **more):
    """An answer as a file has it: by its log-probs, of which the probabilities may be 0."""
    return answer(text, **more) | {"before": exp(before), "after": exp(after), "logprob_before": before,
                                   "logprob_after": after}


@pytest.mark.parametrize("before, after, said", [
    (-255.0, -1400.0, "falls from log-prob −255 to −1,400"), (-1400.0, -255.0, "rises from log-prob −1,400 to"),
    (-9.0, -8.0, "rises from log-prob −9.0 to −8.0"), (-9.0, -9.01, "stays at log-prob −9.0"),
    (-0.5, -255.0, "falls from 61 % to <0.1 %"), (-5e-5, -1e-5, "stays at >99.9 %"), (-0.7, -0.7, "stays at 50 %")])
@pytest.mark.parametrize("wrong", [0.9, 1e-9])
def test_the_sentence_is_the_picture_s(before, after, said, wrong):
    """It moves where the log-prob does, by the numbers of the bars: what is far below 0.1 % has a log-prob only."""
    shown = {"prompt": "ba=", "answer": "ab", "answers": [
        of_logprobs("ab", before, after, exact=True, count=2, reward=1.0, advantage=1.5),
        answer("bb", wrong, wrong, count=6, reward=0.0, advantage=-0.5)]}
    assert f"right one {said}" in sentence(shown)
    words = story.payload({"w0": shown}, "w0", [], 5, 5)["rows"][0]["said"]
    if len(words) == 2 or "log-prob" not in said:  # else the picture shows shares of 1, of which both are next to none
        assert all(each in sentence(shown) for each in words[-1:])
        assert len(words) == (1 if "stays" in said else 2)


def test_right_is_what_the_verifier_accepts_not_the_text_of_the_file():
    """The file says "3"; the model says it in three ways, and never as the file does."""
    ways = [answer(text, *likely, exact=True, count=count, reward=1.0, advantage=0.4) for text, likely, count in (
        ("The answer is 3.", (0.5, 0.52), 4), ("It is 3.", (0.25, 0.24), 2), ("3.", (0.12, 0.13), 1))]
    shown = {"prompt": "1 + 2?", "answer": "3", "answers": [
        answer("3", 1e-5, 1e-5, exact=True), *ways, answer("4", 0.1, 0.05, count=1, reward=0.0, advantage=-2.0)]}
    assert says(sentence(shown), "7 of 8", "3 right ones together rises from 87 % to 89 %", "wrong ones falls")
    texts = [row["text"] for row in story.payload({"w0": shown}, "w0", [], 5, 5)["rows"]]
    assert texts == ["The answer is 3.", "It is 3.", "3.", "4", ""], "the file's own text is as good as never written"
    alone = {**shown, "answers": [shown["answers"][0], shown["answers"][-1]]}
    assert "the right one stays at log-prob −11.5" in sentence(alone), "where no sample is right it is followed"


def test_a_pair_that_stays_is_not_said_to_move():
    shown = pair(chosen=(0.2, 0.2), rejected=(0.3, 0.1)) | {"margin_before": 0.101, "margin_after": 0.102}
    assert says(sentence(shown), "margin stays at 0.10", "chosen", "neither likelier nor less likely",
                "rejected less likely")


def test_where_no_right_answer_is_known_the_best_one_is_named():
    some = {"answers": [answer("long", 0.1, 0.2, count=1, reward=1.0, advantage=0.5),
                        answer("short", 0.3, 0.2, count=1, reward=0.2, advantage=-0.5)]}
    assert says(sentence(some), "After the update", "highest reward", "10 %", "20 %")


def test_the_telling_prompt_is_kept_while_its_rewards_differ():
    groups = {"w0": group(right=7), "w1": group(right=4), "w2": group(right=8), "b0": group(right=4)}
    assert story.telling(groups, None) == "w1"
    assert story.telling(groups, "w0") == "w0", "it still has signal"
    assert story.telling(groups, "w2") == "w1", "it has none any more"
    assert story.telling(groups, "w9") == "w1"
    groups["w3"] = group("what is it?", right=7)
    assert story.telling(groups, "w1", "what is it?") == "w3", "that of the sentence above while it teaches something"
    assert story.telling(groups, "w1", "what is…") == "w3" and story.telling(groups, "w1", "what") == "w1"
    assert story.telling(groups | {"w3": group("what is it?", right=8)}, "w1", "what is it?") == "w1"
    still = {"w0": group(right=8, after=0.31), "w1": group(right=8, after=0.6)}
    assert story.telling(still, None) == "w1" and story.telling(still, "w0") == "w0"


def test_a_group_of_the_batch_has_its_probabilities_from_its_tokens():
    found = groups_of(samples())
    assert [*found] == ["b0", "b1"]
    right, wrong = found["b0"]["answers"]
    assert (right["text"], right["count"], right["reward"], right["advantage"]) == ("abcd", 1, 1.0, 0.7)
    assert right["before"] == pytest.approx(exp(-0.4)) and wrong["truncated"]
    shown = story.payload(found, "b0", [], 5, 5)
    assert shown["apart"] == story.APART and shown["columns"] == [] and shown["late"] == 0


def test_equal_answers_of_a_group_are_one():
    batch = samples()
    batch["groups"][0]["completions"].append(dict(batch["groups"][0]["completions"][0], advantage=0.1))
    right = groups_of(batch)["b0"]["answers"][0]
    assert right["count"] == 2 and right["advantage"] == pytest.approx(0.4)


def test_pairs_of_earlier_files_have_no_after():
    side = {"text": "x", "logprob": -3.0, "ref_logprob": -2.0}
    batch = {"pairs": [{"prompt": "p", "chosen": side, "rejected": side | {"text": "y"}, "margin": 0.5}]}
    groups = groups_of(batch)
    shown = story.payload(groups, "b0", [], 5, 5)
    assert [(row["role"], row["after"]) for row in shown["rows"][:2]] == [("chosen", None), ("rejected", None)]
    assert says(shown["sentence"], "margin", "0.50", "before")
    assert [*groups_of(batch | {"watched": [pair()]})] == ["w0"]


def columns(*likely):
    """A column for each mapping of answers to probabilities."""
    return [history.Column(5 * place, {(text, False): log(value) for text, value in each.items()},
                           {(text, False): text == "ab" for text in each}) for place, each in enumerate(likely)]


def test_rows_are_the_step_s_answers_and_those_that_were_ever_likely():
    over = columns({"ab": 0.3, "once": 0.4, "never": 0.001}, {"ab": 0.31, "bb": 0.2}, {"ab": 0.47, "bb": 0.15})
    shown = story.payload({"w0": group()}, "w0", over, 10, 12)
    assert [row["text"] for row in shown["rows"]] == ["ab", "once", "bb", ""], "the right one first, then the likeliest"
    assert shown["rows"][1]["cells"] == [0.4, None, None] and shown["rows"][1]["before"] is None
    rest = shown["rows"][-1]
    assert rest["rest"] and rest["cells"] == [None] * 3 and rest["before"] is None and rest["said"] == ["at most 38 %"]
    assert (shown["late"], shown["columns"], shown["low"]) == (2, [0, 5, 10], 0)
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown


def test_all_others_have_a_value_only_where_every_row_has_one():
    over = columns({"ab": 0.3}, {"ab": 0.31, "bb": 0.2}, {"ab": 0.47, "bb": 0.15})
    rest = story.payload({"w0": group()}, "w0", over, 10, 10)["rows"][-1]
    assert rest["cells"] == [None, pytest.approx(0.49), pytest.approx(0.38)], "bb was not measured at first: not 0"
    assert (rest["before"], rest["after"]) == pytest.approx((0.49, 0.38)) and rest["said"] == ["49 %", "38 %"]


def test_more_samples_than_rows_are_counted_with_the_others():
    many = {"prompt": "p", "answer": "", "answers": [answer(str(place), 0.01, 0.01, count=1, reward=0.0, advantage=0.0)
                                                     for place in range(9)]}
    rows = story.payload({"w0": many}, "w0", [], 5, 5)["rows"]
    assert len(rows) == story.ROWS + 1 and rows[-1]["count"] == 3


def test_unlikely_answers_are_shown_by_their_log_probs():
    shown = story.payload({"w0": pair()}, "w0", [], 5, 5)
    assert shown["low"] == -70 and not any(row["rest"] for row in shown["rows"])
    assert shown["rows"][0]["said"] == ["−69.1", "−68.4"] and not shown["advantages"] and not shown["rewards"]
    assert 0 < shown["rows"][0]["before"] < shown["rows"][0]["after"] < shown["rows"][1]["after"] < 1


def test_a_prompt_is_chosen_by_its_last_user_turn():
    written = ("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is\n3 + 4?<|im_end|>\n"
               "<|im_start|>assistant\n")
    cut = f"{'x' * 200} 4?"
    groups = {"w0": group(written), "w1": group("What is 1 + 1?") | {"rendered": written}, "b0": group(cut)}
    shown = story.payload(groups, "w0", [], 5, 5)
    *short, long = (option[2] for option in shown["options"])
    assert short == ["What is 3 + 4?", "What is 1 + 1?"]
    assert len(long) <= story.LINE + 1 and long.startswith("xxx") and "… x" in long and long.endswith("x 4?")
    assert shown["asked"]["turn"] == "What is\n3 + 4?" and ["token", "<|im_end|>"] in shown["asked"]["parts"]
    asked = story.payload(groups, "b0", [], 5, 5)["asked"]
    assert len(asked["turn"]) == 161 and asked["turn"].endswith("x 4?") and asked["parts"] == [["text", cut]]


# ---- files -----------------------------------------------------------------------------------------------------


def write(run_id, step, *groups):
    folder = run_folder(run_id) / "samples"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"step-{step:06d}.json").write_text(json.dumps(samples() | {"step": step, "watched": groups}))


def test_the_history_of_a_prompt_begins_before_the_first_step(lab):
    write("run", 1, group(), group("other", before=0.1, after=0.2))
    write("run", 5, group(), group("other", before=0.2, after=0.3))
    found = history.over("run", [1, 3, 5], {}, "w1")
    assert [column.step for column in found] == [0, 1, 5]
    assert [exp(column.logprobs["ab", False]) for column in found] == pytest.approx([0.1, 0.2, 0.3])
    assert found[0].exact["ab", False] and history.over("run", [1, 5], {}, "w3") == []


def test_a_file_is_read_once(lab, monkeypatch):
    for step in (1, 5, 10):
        write("run", step, group())
    read = []
    load = files.load
    monkeypatch.setattr(files, "load", lambda *which: read.append(which[2]) or load(*which))
    history.over("run", [1, 5], {}, "w0")
    history.over("run", [1, 5, 10], {}, "w0")
    assert read == [1, 5, 10]


def test_an_open_page_goes_on_while_the_files_of_the_lab_change(lab, monkeypatch):
    """Streamlit forgets the modules then, and a page that is open still runs those of before."""
    for step in (1, 5):
        write("run", step, group())
    monkeypatch.delitem(sys.modules, history.__name__)
    assert len(history.over("run", [1, 5], {}, "w0")) == 3


def test_a_long_run_is_read_in_few_files_and_the_same_ones_later():
    some, more = (history.thinned(range(5, count, 5), 40) for count in (2000, 2200))
    assert len(some) <= history.MOST + 2 and len({*some} - {*more}) <= 1
    assert 40 in some and some[-1] == 1995 and history.thinned([1, 5], 5) == [1, 5]


# ---- the page --------------------------------------------------------------------------------------------------


def strip(test):
    """What the page gives to the strip."""
    found = [json.loads(element.proto.json)[0] for element in test.get("bidi_component")
             if '"sentence"' in element.proto.json or '"empty"' in element.proto.json]
    assert len(found) == 1
    return found[0]


def test_the_page_shows_the_newest_samples_and_says_their_step(page, lab):
    run_id = seed(lab.store, "finished")
    shown = strip(page("llm", run=run_id))
    assert (shown["step"], shown["late"], shown["pinned"]) == (5, 1, False), "files of before have batch groups"
    write(run_id, 1, group())
    write(run_id, 5, group(), group("db=", right=8))
    shown = strip(page("llm", run=run_id))
    assert (shown["chosen"], shown["prompt"], shown["columns"]) == ("w0", "ba=", [0, 1, 5])
    assert [option[0] for option in shown["options"]] == ["w0", "w1", "b0", "b1"]


def test_the_link_keeps_the_prompt(page, lab):
    run_id = seed(lab.store, "finished")
    write(run_id, 5, group(), group("db=", right=8))
    test = page("llm", run=run_id, story="w1")
    assert strip(test)["prompt"] == "db=" and strip(test)["pinned"] and link(test)["story"] == "w1"
    assert strip(page("llm", run=run_id, story="w3"))["prompt"] == "ba=", "there are but two"
    assert strip(page("llm", run=run_id, story="nonsense"))["prompt"] == "ba="


@pytest.mark.parametrize("state, words", [
    ("running", "The model's answers appear here after the first step."), ("failed", "This run has no samples")])
def test_a_run_without_samples_says_so(state, words, page, lab):
    run_id = seed(lab.store, state, steps=0)
    (run_folder(run_id) / "samples" / "step-000005.json").unlink()
    assert strip(page("llm", run=run_id))["empty"].startswith(words)


def test_where_the_newest_samples_have_no_watched_prompts_the_last_ones_are_shown(page, lab):
    """A large model is watched less often than its batch is kept."""
    run_id = seed(lab.store, "finished")
    write(run_id, 2, group())
    write(run_id, 5)
    shown = strip(page("llm", run=run_id))
    assert (shown["step"], shown["late"], shown["prompt"]) == (2, 4, "ba=")
    write(run_id, 2)
    assert strip(page("llm", run=run_id))["options"][0][1] == "batch", "its first samples are a group of the batch"


def test_a_run_without_probes_says_so(page, lab):
    run_id = seed(lab.store, "finished", knobs={"probes": False})
    (run_folder(run_id) / "samples" / "step-000005.json").unlink()
    assert strip(page("llm", run=run_id))["empty"] == OFF


def sent(*rewards, prompt="What is 3 + 4?", **more):
    """A group as another tool sends it: long answers with rewards, and neither verdicts nor log-probs."""
    return {"prompt": prompt, "completions": [
        {"text": f"Let me think about it step by step. {place}", "reward": reward, **more}
        for place, reward in enumerate(rewards)]}


def sends(run_id, step, *groups, earlier=False):
    """Write a file as the lab does, or as an `earlier` version of it did."""
    content = {"step": step, "groups": [*groups]}
    step_files.write(run_folder(run_id) / "samples", step, json.dumps(
        content if earlier else step_files.with_prompts(content)))


def test_a_batch_without_log_probs_is_shown_by_its_rewards():
    found = groups_of({"step": 3, "groups": [sent(0, 1, 1, None)]})
    drawn = story.payload(found, "b0", [], 3, 3)
    assert [band["text"] for band in drawn["verdicts"]] == ["reward 1", "reward 0", "not scored"]
    assert says(drawn["sentence"], "3 answers", "0 to 1.00", "0.67") and not drawn["advantages"]
    assert all(band["change"] is None and band["exact"] is None for band in drawn["verdicts"])
    short = groups_of({"step": 3, "groups": [{"prompt": "a", "completions": [{"text": "7", "reward": 1.0},
                                                                             {"text": "8", "reward": 1.0}]}]})
    assert story.payload(short, "b0", [], 3, 3)["sentence"] == "2 answers earn 1.00 each."
    assert story.payload(short, "b0", [], 3, 3)["verdicts"], "no bars without probabilities"


def test_a_prompt_that_batches_have_again_has_a_history(lab):
    sends("run", 1, sent(0, 0), sent(1, 0, prompt="another"))
    sends("run", 2, sent(1, 0, prompt="a third"))
    sends("run", 3, sent(0, 1, prompt="a fourth"), sent(1, 0))
    groups = groups_of(files.load("run", "samples", 3))
    assert history.recurring("run", [1, 2, 3], groups) == {"b1"}
    found = history.over("run", [1, 2, 3], groups, "b1")
    assert [(column.step, [sample.reward for sample in column.sampled]) for column in found] == [
        (1, [0, 0]), (3, [1, 0])]
    drawn = story.payload(groups, "b1", found, 3, 3)
    assert drawn["columns"] == [1, 3] and [band["cells"] for band in drawn["verdicts"]] == [[0.0, 0.5], [1.0, 0.5]]
    assert history.over("run", [1, 2, 3], groups, "b0") == []
    sends("run", 4, sent(1, 1), earlier=True)
    assert history.recurring("run", [1, 2, 4], groups) == {"b1"}, "files of earlier versions count as well"
    assert [column.step for column in history.over("run", [1, 2, 3, 4], groups, "b1")] == [1, 3, 4]
    assert story.payload(groups, "b0", [], 3, 3)["apart"] == story.APART
    assert story.telling(groups, None) == "b0" and story.telling(groups, None, again={"b1"}) == "b1"


def test_conversations_with_one_last_turn_are_different_prompts(lab):
    def chat(first):
        return prompt_fields([{"role": "user", "content": first}, {"role": "user", "content": "Go on."}])
    for step, first in enumerate("aba", start=1):
        sends("run", step, sent(0, 1) | chat(first))
    groups = groups_of(files.load("run", "samples", 3))
    assert history.recurring("run", [1, 2, 3], groups) == {"b0"}
    found = history.over("run", [1, 2, 3], groups, "b0")
    assert [column.step for column in found] == [1, 3]
    asked = story.payload(groups, "b0", found, 3, 3)["asked"]
    assert asked["turn"] == "Go on." and ["token", "<|im_start|>"] in asked["parts"]


def test_a_file_without_the_prompt_is_not_read_whole(lab, monkeypatch):
    for step in range(1, 9):
        sends("run", step, sent(0, 1, prompt="again" if step in (2, 8) else f"only in {step}"))
    groups = groups_of(files.load("run", "samples", 8))
    read, load = [], files.load
    monkeypatch.setattr(files, "load", lambda *which: read.append(which[2]) or load(*which))
    assert history.recurring("run", range(1, 9), groups) == {"b0"} and read == []
    assert len(history.over("run", range(1, 9), groups, "b0")) == 2 and read == [2, 8]


def test_a_group_of_an_older_policy_is_compared_with_the_policy_before_the_step():
    completion = {"text": "ab", "reward": 1.0, "advantage": 0.5, "old_logprobs": [-1.0, -1.0],
                  "logprobs": [-0.25, -0.25], "met": {"gap": [0.5, 0.25]}}
    found = of_batch({"prompt": "ba=", "age": 2, "completions": [completion]})
    assert found["answers"][0]["logprob_before"] == -1.25 and found["answers"][0]["logprob_after"] == -0.5
    assert says(sample_age.sentence(found), "2 updates ago", "older policy")
    assert "age" not in of_batch({"prompt": "ba=", "completions": [completion]})
