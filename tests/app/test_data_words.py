"""The sentences about the user's own file and about 16 answers to its prompts, and what their buttons change."""

import dataclasses

import pytest

from app.training.data_words import of_file, of_trial
from labcore.runs.spec.run_spec import make
from labcore.tasks.file_statistics import FileStatistics
from tests.words import says

LOOK = FileStatistics(100, 80, (1, 4, 9), (4,) * 100, 0, "exact", 0, 0, 0)


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "p.jsonl").write_text('{"prompt": "a", "answer": "b"}')

    def made(algorithm="grpo", task="prompts", model=None, **knobs):
        data = str(tmp_path / "p.jsonl") if task == "prompts" else None
        return make(algorithm_key=algorithm, task_key=task, model=model, knobs=knobs, data=data)
    return made


def said(findings, level=None) -> str:
    return " ".join(finding.text for finding in findings if level in (None, finding.level))


def proposals(findings) -> dict:
    return {use.label: use for finding in findings for use in finding.proposals}


def of(spec, **changed):
    return of_file(dataclasses.replace(LOOK, **changed), spec)


def test_a_file_without_a_fault_is_one_good_sentence(spec):
    """The lengths in tokens, and whether they fit the context, are the preview's to say: not here once more."""
    found = of(spec())
    assert says(said(found), "100 prompts", "1 to 9 characters", "median 4") and "token" not in said(found)
    assert {finding.level for finding in found} == {"good"} and not proposals(found)
    assert said(of(spec(), lines=1, answers=(1, 1, 1))).startswith("1 prompt; answers have 1 character each.")


def test_marked_answers_propose_the_numeric_verifier_while_it_is_exact(spec):
    found = of(spec(), marked=96, fits="numeric")
    assert says(said(found, "warning"), "96 of 100", "“#### number”", "verifier", "exact")
    assert proposals(found)["Use the numeric verifier"].knobs == (("verifier", "numeric"),)
    assert not proposals(of(spec(verifier="length"), marked=96, fits="numeric"))
    assert not proposals(of(spec(), marked=96)), "one of them is none"


@pytest.mark.parametrize("fits, words", [("numeric", "All answers are numbers"), ("math", "accepts 0.75 for 3/4"),
                                         ("choice", "All answers are letters")])
def test_the_verifier_that_reads_every_answer_is_proposed(spec, fits, words):
    found = of(spec(), fits=fits)
    assert words in said(found, "note") and proposals(found)[f"Use the {fits} verifier"].knobs == (("verifier", fits),)


def test_answers_that_the_limit_cuts_propose_a_longer_one_if_there_is_room(spec):
    cut = of(spec(), lengths=(10,) * 50 + (299,) * 50)
    assert says(said(cut, "warning"), "50 of 100 answers", "longer", "64 tokens")
    assert proposals(cut)["Length limit 300"].knobs == (("max_new_tokens", 300),)
    assert not proposals(of(spec(), longest=1900, lengths=(299,) * 100))
    assert "longer than" not in said(of(spec(), lengths=(63,) * 100)), "the end is one token more"
    assert "longer than" not in said(of(spec(verifier="length"), lengths=(299,) * 100))


def test_lines_without_an_answer_and_repeats(spec):
    assert "1 line has no answer." in said(of(spec(), empty=1)) and "2 lines have no" in said(of(spec(), empty=2))
    assert "3 prompts repeat an earlier one." in said(of(spec(), repeated=3), "note")
    assert "1 prompt repeats an earlier one, 1 with another answer." in said(
        of(spec(), repeated=1, disagreeing=1), "warning")


def test_a_file_without_answers_has_nothing_for_sft(spec):
    first = of(spec(verifier="length"), empty=100)
    assert "SFT has nothing to learn" in said(first, "warning")
    assert proposals(first)["No SFT"].knobs == (("sft_steps", 0),)
    assert said(of(spec(verifier="length", sft_steps=0), empty=100), "note").startswith("No line has an answer.")
    assert not proposals(of(spec("sft", verifier="length"), empty=100))


def result(right=0, count=16, rewards=(0.0,), **more):
    answers = [{"exact": place < right, "reward": 1.0 if place < right else rewards[place % len(rewards)]}
               for place in range(count)]
    return {"context": 512, "longest": 40, "answers": answers, **more}


def test_no_right_answer_is_nothing_to_reinforce_and_three_ways_out(spec):
    found = of_trial(result(), spec(sft_steps=0), taught=False)
    assert says(said(found, "warning"), "0.1 M", "0 of 16", "choose a larger model", "SFT", "verifier")
    uses = proposals(found)
    assert uses["Choose small (0.8 M)"].model == "small"
    assert uses["400 SFT steps first"].knobs == (("sft_steps", 400),)
    assert uses["Use the contains verifier"].knobs == (("verifier", "contains"),)


def test_sft_that_is_still_to_come_is_said(spec):
    assert says(said(of_trial(result(), spec(), taught=False)), "0 of 16 before SFT", "SFT of at most 50 steps",
                "still answers none")
    assert "before SFT" not in said(of_trial(result(), spec(), taught=True))
    assert says(said(of_trial(result(), spec("sft"), False), "note"), "SFT", "answers of the file")


def test_a_shaped_reward_is_proposed_where_the_task_has_one(spec):
    assert proposals(of_trial(result(), spec(task="add"), True))["Use the shaped reward"].knobs == (
        ("reward_shape", "shaped"),)
    assert "shaped" not in said(of_trial(result(), spec(task="add", reward_shape="shaped"), True))


def test_a_model_of_the_user_s_is_called_by_its_name_and_can_be_taught(spec):
    found = of_trial(result(), spec(model="org/model"), False)
    assert said(found).startswith("org/model answered 0 of 16; with")
    assert proposals(found)["Switch to SFT"].algorithm == "sft"


def test_some_right_all_right_and_rewards_that_differ(spec):
    assert "5 of 16 (exact match): some answers are right" in said(of_trial(result(5), spec(), True), "good")
    assert "nothing left to learn" in said(of_trial(result(16), spec(), True), "note")
    assert "rewards differ (mean 0.25)" in said(of_trial(result(0, rewards=(0.0, 0.5)), spec(), True), "good")


def test_no_prompt_that_fits_is_said(spec):
    assert "No prompt was tried, because none fits" in said(of_trial(result(0, 0), spec(), True), "warning")


def instruct(right=0, cut=0, **more):
    found = result(right, context=2048, has_template=True, templated=True, **more)
    return found | {"answers": [each | {"truncated": place < cut} for place, each in enumerate(found["answers"])]}


def test_an_instruct_model_without_its_template_is_told_to_use_it(spec):
    found = of_trial(instruct() | {"templated": False}, spec(model="org/model", template="off"), False)
    assert "org/model has a chat template, but the template is off" in said(found, "warning")
    assert "org/model answered 0 of 16. Apply the suggestions above first" in said(found, "warning")
    assert {*proposals(found)} == {"Use the chat template"}
    assert proposals(found)["Use the chat template"].knobs == (("template", "auto"),)
    assert "template" not in said(of_trial(instruct(5), spec(model="org/model"), False))


def test_completions_that_the_limit_cuts_propose_a_longer_one(spec):
    found = of_trial(instruct(3, cut=12), spec(model="org/model", max_new_tokens=64), False)
    assert says(said(found, "warning"), "12 of 16 completions", "cut", "64 tokens")
    assert proposals(found)["Length limit 256"].knobs == (("max_new_tokens", 256),)
    few = of_trial(instruct(3, cut=5), spec(model="org/model", max_new_tokens=64), False)
    assert "Length limit 128" in proposals(few)
    assert "were cut" not in said(of_trial(instruct(3, cut=2), spec(model="org/model"), False))
    full = of_trial(instruct(3, cut=16) | {"context": 104}, spec(model="org/model", max_new_tokens=64), False)
    assert "no room for longer ones" in said(full, "warning") and "Length limit" not in str(proposals(full))
    assert "were cut" not in said(of_trial(instruct(0, cut=16), spec(), taught=False)), "it was not taught to end"
