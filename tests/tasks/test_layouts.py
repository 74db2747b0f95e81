"""The layouts of data files that people have, each as a row that its tool documents."""

import pytest

from labcore.errors import LabError
from labcore.tasks.layouts import Entry, entry
from labcore.tasks.task import Turn
from tests.every import every

USER, ASSISTANT, SYSTEM = (lambda text, role=role: Turn(role, text) for role in ("user", "assistant", "system"))


def turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


ROWS = {
    "TRL, prompt and completion": ({"prompt": "2+3=", "completion": "5"}, Entry("2+3=", answer="5")),
    "TRL, prompt alone": ({"prompt": "The sky is"}, Entry("The sky is")),
    "TRL, conversational": ({"prompt": [turn("user", "2+3=")], "answer": "5"}, Entry("2+3=", answer="5")),
    "TRL, conversational completion": ({"prompt": [turn("user", "2+3=")], "completion": [turn("assistant", "5")]},
                                       Entry("2+3=", answer="5")),
    "messages": ({"messages": [turn("user", "2+3="), turn("assistant", "5")]},
                 Entry("2+3=", answer="5", whole=True)),
    "several turns": ({"messages": [turn("system", "Be brief."), turn("user", "a"), turn("assistant", "b"),
                                    turn("user", "c"), turn("assistant", "d")]},
                      Entry("c", (SYSTEM("Be brief."), USER("a"), ASSISTANT("b"), USER("c")), "d", whole=True)),
    "ShareGPT": ({"conversations": [{"from": "human", "value": "2+3="}, {"from": "gpt", "value": "5"}]},
                 Entry("2+3=", answer="5", whole=True)),
    "alpaca": ({"instruction": "Add.", "input": "2 3", "output": "5"}, Entry("Add.\n\n2 3", answer="5")),
    "alpaca without input": ({"instruction": "Name a colour.", "input": "", "output": "red"},
                             Entry("Name a colour.", answer="red")),
    "GSM8K": ({"question": "6*7?", "answer": "6*7=42\n#### 42"}, Entry("6*7?", answer="6*7=42\n#### 42")),
    "MATH": ({"problem": "1/2?", "solution": "$\\boxed{\\frac12}$", "level": "Level 1"},
             Entry("1/2?", answer="$\\boxed{\\frac12}$", columns={"level": "Level 1"})),
    "verl": ({"data_source": "gsm8k", "prompt": [turn("user", "6*7?")],
              "reward_model": {"style": "rule", "ground_truth": "42"}, "extra_info": {"index": 0}},
             Entry("6*7?", answer="42", columns={"data_source": "gsm8k", "extra_info": {"index": 0}})),
    "OpenRLHF": ({"input": "6*7?", "label": "42"}, Entry("6*7?", answer="42")),
    "a system column": ({"system": "Be brief.", "prompt": "a", "answer": "b"},
                        Entry("a", (SYSTEM("Be brief."), USER("a")), "b")),
    "pairs": ({"prompt": "p", "chosen": "a", "rejected": "b", "score": 1}, Entry("p", chosen="a", rejected="b",
                                                                                 columns={"score": 1})),
    "conversational pairs": ({"prompt": [turn("user", "p")], "chosen": [turn("assistant", "a")],
                              "rejected": [turn("assistant", "b")]}, Entry("p", chosen="a", rejected="b")),
    "UltraFeedback": ({"prompt": "p", "chosen": [turn("user", "p"), turn("assistant", "a")],
                       "rejected": [turn("user", "p"), turn("assistant", "b")]}, Entry("p", chosen="a", rejected="b")),
    "Anthropic HH": ({"chosen": "\n\nHuman: Hi\n\nAssistant: Hello!", "rejected": "\n\nHuman: Hi\n\nAssistant: Go."},
                     Entry("Hi", chosen="Hello!", rejected="Go.")),
    "HH, several turns": ({"chosen": "\n\nHuman: a\n\nAssistant: b\n\nHuman: c\n\nAssistant: d",
                           "rejected": "\n\nHuman: a\n\nAssistant: b\n\nHuman: c\n\nAssistant: e"},
                          Entry("c", (USER("a"), ASSISTANT("b"), USER("c")), chosen="d", rejected="e")),
    "implicit prompt": ({"chosen": "The sky is blue.", "rejected": "The sky is green."},
                        Entry("The sky is", chosen=" blue.", rejected=" green.")),
}
LABELS = [(True, True), (False, False), (1, True), (0, False), (1.0, True), ("true", True), ("false", False),
          ("1", True)]


@every("name", ROWS)
def test_each_layout_is_read(name):
    given, expected = ROWS[name]
    found = entry(given, "line 1 of x.jsonl")
    assert found == expected and found.columns == expected.columns


def test_a_row_with_an_answer_and_two_sides_is_taken_as_its_task_needs_it():
    given = {"prompt": "p", "answer": "5", "chosen": "a", "rejected": "b"}
    assert entry(given, "line 1 of x.jsonl").answer == "5"
    assert entry(given, "line 1 of x.jsonl", labelled=True).chosen == "a"


@pytest.mark.parametrize("label, desired", LABELS)
def test_labels_of_kto(label, desired):
    found = entry({"prompt": "p", "completion": "a", "label": label}, "line 1 of x.jsonl", labelled=True)
    assert found == Entry("p", completion="a", label=desired)


def test_fields_are_named_by_the_user():
    given = {"q": "6*7?", "sol": "42", "persona": "Be brief."}
    found = entry(given, "line 1 of x.csv", {"prompt": "q", "answer": "sol", "system": "persona"})
    assert found == Entry("6*7?", (SYSTEM("Be brief."), USER("6*7?")), "42") and given.keys() == {"q", "sol", "persona"}


@every("given, names, words", [
    ({"text": "a"}, {}, "no field 'prompt' or 'question' or 'problem'.*--map prompt=FIELD.*'text'"),
    ({"q": "a"}, {"prompt": "ask"}, "no field 'ask' for the prompt.*'q'"),
    ({"prompt": ""}, {}, "empty prompt"), ({"prompt": []}, {}, "no list of turns"),
    ({"prompt": [{"role": "boss", "content": "x"}]}, {}, "turn 1 of 'prompt' without a text or a role"),
    ({"prompt": "p", "completion": [turn("assistant", "a"), turn("user", "b")]}, {}, "2 turns in 'completion'"),
    ({"messages": [turn("assistant", "a")]}, {}, "an answer without a prompt"),
    ({"prompt": "p", "chosen": "a"}, {}, "no field 'rejected'"),
    ({"chosen": "a", "rejected": "b"}, {}, "no prompt that both sides begin with"),
    ({"prompt": "p", "chosen": [turn("user", "p"), turn("assistant", "a"), turn("user", "x"), turn("assistant", "b")],
      "rejected": [turn("user", "p"), turn("assistant", "c")]}, {}, "differ before their last turn"),
    ({"prompt": "p", "chosen": [turn("user", "a")], "rejected": [turn("assistant", "b")]}, {}, "does not end with the"),
    ({"messages": [turn("user", "a"), turn("assistant", " ")]}, {}, "an empty turn of the assistant, turn 2"),
    ({"messages": [turn("user", "a"), turn("assistant", ""), turn("user", "b"), turn("assistant", "c")]}, {},
     "turn 2 of 'messages': write its text"),
    ({"chosen": "\n\nHuman: a\n\nAssistant: b", "rejected": "\n\nHuman: a\n\nAssistant:"}, {},
     "turn 2 of 'rejected'"),
    ({"prompt": [turn("user", "a"), turn("assistant", "b")], "answer": "c"}, {}, "ends with a turn of the assistant"),
    ({"prompt": "p", "answer": ["5"]}, {}, "turn 1 of 'answer'"),
    ({"prompt": "p", "answer": {"a": 1}}, {}, "is an object"),
])
def test_a_row_that_fits_no_layout_says_why(given, names, words):
    with pytest.raises(LabError, match=words) as error:
        entry(given, "line 3 of x.jsonl", names)
    assert "ine 3 of x.jsonl" in str(error.value) and str(error.value).endswith(".")
