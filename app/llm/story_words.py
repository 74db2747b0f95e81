"""The change of a prompt's answers at a step, in one sentence with its numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log
from typing import Any

from app.chat_text import in_one_line
from app.theme import number
from labcore.catalog.amounts import likelihood

LONG = 40  # characters of an answer in a sentence
SMALL = 1e-3  # if all probabilities are below it, log-probs are shown
STILL = 5e-4  # a probability that changes by less counts as unchanged


def moved(before: float, after: float) -> str:
    """The change of a probability in words, such as "rises from 31 % to 47 %", from two log-probs (nats). If both
    probabilities are below 0.1 %, the sentence has the log-probs instead.

    >>> moved(log(0.31), log(0.47)), moved(log(0.2), log(0.1)), moved(log(0.5), log(0.5002))
    ('rises from 31 % to 47 %', 'falls from 20 % to 10 %', 'stays at 50 %')
    >>> moved(-255.2, -1400.0), moved(-255.2, -255.21), moved(log(0.2), -1400.0)
    ('falls from log-prob −255 to −1,400', 'stays at log-prob −255', 'falls from 20 % to <0.1 %')
    """
    shares = [exp(min(each, 0.0)) for each in (before, after)]
    kind, words = "", [likelihood(each) for each in (before, after)]
    if max(shares) < SMALL:
        kind, words = "log-prob ", [number(each, 1) for each in (before, after)]
    elif abs(shares[1] - shares[0]) < STILL:
        words = words[1:]
    if words[0] == words[-1]:
        return f"stays at {kind}{words[-1]}"
    return f"{'rises' if after > before else 'falls'} from {kind}{words[0]} to {words[1]}"


def sentence(group: dict[str, Any]) -> str:
    """The change of a group's answers at its step, in a sentence."""
    answers = group["answers"]
    chosen, rejected = (_of_role(answers, role) for role in ("chosen", "rejected"))
    if chosen and rejected:
        return _of_pair(group, chosen, rejected)
    sampled = [answer for answer in answers if answer["count"]]
    count = sum(answer["count"] for answer in sampled)
    return " ".join(filter(None, (judged(sampled, count), _right(answers) or _favoured(sampled), _taught(answers))))


def _taught(answers: list[dict[str, Any]]) -> str:
    """The tracked answer that has the highest probability under the teacher.

    >>> _taught([{"text": "ab", "logprob_teacher": log(0.9)}, {"text": "b", "logprob_teacher": log(0.02)}])
    'The teacher would write ab with probability 90 %.'
    """
    known = [answer for answer in answers if answer.get("logprob_teacher") is not None]
    if not known:
        return ""
    best = max(known, key=lambda answer: answer["logprob_teacher"])
    return (f"The teacher would write {in_one_line(best['text'], LONG)} with probability "
            f"{likelihood(best['logprob_teacher'])}.")


def judged(sampled: list[dict[str, Any]], count: int) -> str:
    """The number of right answers, or that all have the same reward; of answers without a verdict their rewards."""
    rewards = {answer["reward"] for answer in sampled}
    if count > 1 and len(rewards) == 1 and all(answer["advantage"] == 0 for answer in sampled):
        return f"All {count} answers earn the same reward, so they give no gradient."
    right = sum(answer["count"] for answer in sampled if answer["exact"])
    judged = any(answer["exact"] is not None for answer in sampled)
    if not judged or not count:
        return _earned([(answer["reward"], answer["count"]) for answer in sampled if answer["reward"] is not None])
    if count == 1:
        return f"Its one answer is {'right' if right else 'wrong'}."
    many = "None" if not right else "All" if right == count else str(right)
    return f"{many} of {count} answers {'is' if right == 1 else 'are'} right."


def _earned(rewards: Sequence[tuple[float, int]]) -> str:
    """The rewards of some answers, each with its count, in a sentence.

    >>> _earned([(1.0, 1), (0.0, 3)]), _earned([(0.5, 4)]), _earned([])
    ('4 answers earn from 0 to 1.00, 0.25 on average.', '4 answers earn 0.50 each.', '')
    """
    count = sum(times for _, times in rewards)
    if count < 2:
        return ""
    low, high = (number(each, 2) for each in (min(rewards)[0], max(rewards)[0]))
    mean = number(sum(reward * times for reward, times in rewards) / count, 2)
    return f"{count} answers earn {low} each." if low == high else (
        f"{count} answers earn from {low} to {high}, {mean} on average.")


def _right(answers: list[dict[str, Any]]) -> str:
    """The effect of the update on the right answers together, and on the wrong ones that were sampled.

    The right ones are those among the samples that the verifier accepts; where it accepts none, those that are followed
    without being sampled, such as the answer of a file.
    """
    known = [answer for answer in answers if answer["after"] is not None]
    right = [answer for answer in known if answer["exact"]]
    right = [answer for answer in right if answer["count"]] or right
    if not right:
        return ""
    change = sum(answer["after"] - answer["before"] for answer in known if answer["count"] and not answer["exact"])
    rest = "" if abs(change) < STILL else f", and that of the sampled wrong ones {'rises' if change > 0 else 'falls'}"
    which = "right one" if len(right) == 1 else f"{len(right)} right ones together"
    before, after = (_together(answer[f"logprob_{when}"] for answer in right) for when in ("before", "after"))
    return f"After the update the probability of the {which} {moved(before, after)}{rest}."


def _together(logprobs: Iterable[float]) -> float:
    """The log-prob of any of some answers, nats.

    >>> round(_together([log(0.25), log(0.5)]), 6) == round(log(0.75), 6), round(_together([-900.0]), 6)
    (True, -900.0)
    """
    found = [*logprobs]
    most = max(found)
    return most + log(sum(exp(each - most) for each in found))


def _favoured(sampled: list[dict[str, Any]]) -> str:
    """The change of the likeliest answer with the highest reward; used if no answer is known to be right."""
    known = [answer for answer in sampled if answer["reward"] is not None and answer["after"] is not None]
    if len({answer["reward"] for answer in known}) < 2:
        return ""
    best = max(known, key=lambda answer: (answer["reward"], answer["before"]))
    return f"After the update the probability of the answer with the highest reward {_of(best)}."


def _of_pair(group: dict[str, Any], chosen: dict[str, Any], rejected: dict[str, Any]) -> str:
    """The effect of the update on a pair: the margin, and both sides."""
    if chosen["after"] is None:
        known = group.get("margin_before")
        return "" if known is None else f"The margin is {_plain(known)} before the update."
    first, last = group.get("margin_before"), group.get("margin_after")
    margin = "" if first is None or last is None else (
        f"The margin stays at {_plain(last)}" if _plain(first) == _plain(last) else
        f"The margin {'grows' if last > first else 'shrinks'} from {_plain(first)} to {_plain(last)}")
    first_way, last_way = (_way(side["logprob_before"], side["logprob_after"]) for side in (chosen, rejected))
    both = f"both become {first_way}" if first_way == last_way else f"chosen becomes {first_way}, rejected {last_way}"
    return f"{margin}: {both}." if margin else f"{both[0].upper()}{both[1:]}."


def _way(before: float, after: float) -> str:
    """The direction of a side's log-prob, as it is written."""
    if number(before, 1) == number(after, 1) and moved(before, after).startswith("stays"):
        return "neither likelier nor less likely"
    return "likelier" if after > before else "less likely"


def _of(answer: dict[str, Any]) -> str:
    return moved(answer["logprob_before"], answer["logprob_after"])


def _plain(value: float | None) -> str:
    return "–" if value is None else number(value, 2)


def _of_role(answers: list[dict[str, Any]], role: str) -> dict[str, Any] | None:
    return next((answer for answer in answers if answer.get("role") == role), None)
