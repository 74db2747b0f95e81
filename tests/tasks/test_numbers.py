"""Numbers of texts against what a reader says: a part of something else is no number."""

import random
from decimal import Decimal

from labcore.tasks.numbers import number, numeric, plain
from tests.every import every


@every(("text", "value"), [
    ("#### 18", "18"),
    ("####18", "18"),
    ("9 * 2 = $18\n#### 1,018", "1018"),
    ("#### $1,234,567.50", "1234567.5"),
    ("#### -5", "-5"),
    ("#### −5", "-5"),
    ("#### $-5 or so", "-5"),
    ("-$5", "-5"),
    ("+7", "7"),
    ("–7", "-7"),
    ("it is –7.", "-7"),
    ("#### 18\n\nQuestion: what of 7? #### 99", "18"),
    ("####\n18", "18"),
    ("#### none\nso 4", "4"),
    ("from 3 to 4.", "4"),
    ("a total of 1,000.", "1000"),
    ("1 000", "1000"),
    ("1\u202f000\u202f000", "1000000"),
    ("1{,}000", "1000"),
    (r"2\,000", "2000"),
    (r"$1,\!000$", "1000"),
    ("1'000", "1000"),
    ("1’000.5 in all", "1000.5"),
    ("1_000", "1000"),
    ("20-5", "5"),
    ("(3)-4", "4"),
    ("3 - 4", "4"),
    ("covid-19", "19"),
    ("it is -4", "-4"),
    ("50%", "50"),
    (".5", "0.5"),
    ("5.0", "5"),
    ("1, 2, 3", "3"),
    ("1 2 3", "3"),
    ("1e3", "1000"),
    ("1E-05", "0.00001"),
    ("3 eggs", "3"),
    ("007", "7"),
    ("€2.50 each", "2.5"),
    ("**42**", "42"),
    ("_42_", "42"),
    ("$42$", "42"),
    (r"90^\circ", "90"),
    (r"42\text{ cm}", "42"),
    ("Step 1: 5 apples", "5"),
    ("$18/day", "18"),
    ("3/4 of 8 is 6", "6"),
    ("at 2:45 there were 7", "7"),
    (r"\boxed{42}. I checked 3 times", "42"),
    (r"\boxed{7}, no, \boxed{42}", "42"),
    (r"\boxed{1{,}000}", "1000"),
    (r"\boxed{42} #### 7", "7"),
    ("9" * 5000, "9" * 5000),
])
def test_number(text, value):
    assert number(text) == Decimal(value)


@every("text", [
    "", "none", "####", "#### none", "$", "-", "٣", "3/4", "so it is 1/4", "1 / 4", "#### 3/4", "3⁄4", "2:45", "1,5",
    "1,2,3", "0,500", "1.000,50", "1.000.000", "1,000,5", "1'00",
    "1.2.2024", r"\frac{3}{4}", r"\frac34", r"\frac{x}{4}",
    r"\dfrac{1}{x}", r"\sqrt{2}", r"3\sqrt{2}", r"2\pi", "2π", "√2", "2^10", "2**10", "x^{2}", "x_{12}", "3½", "-3/4",
    r"\boxed{3/4}", r"\boxed{x}", r"\boxed{3, 4}", r"\boxed{\frac{3}{4}}. I checked 3 times", "(3)/(4)", "{3}/{4}",
])
def test_no_number(text):
    assert number(text) is None


@every(("completion", "answer", "right"), [
    ("The answer is $18.00", "#### 18", True), ("so 17", "18", False), ("I do not know", "18", False),
    ("I do not know", "nor do I", False), ("-18", "18", False), ("1800%", "1,800", True),
    ("so it is 1/4", "3/4", False), ("2:45", "3:45", False), ("3/4", "4", False), ("1,5", "5", False),
    ("1 000", "1000", True), ("–7", "-7", True), ("–7", "7", False), (r"2\,000", "0", False),
    ("$1,018.00", "1018", True),
])
def test_numeric(completion, answer, right):
    assert numeric(completion, answer) is right


@every(("answer", "fits"), [
    ("18", True), ("-1,234.5", True), ("$18", True), ("50%", True), ("1 000", True), ("–7", True), ("18.", True),
    ("9 * 2 = 18\n#### 18", True), ("#### $1,000", True), (r"so \boxed{42}", True), ("1e3", True),
    ("18 eggs", False), ("20-5", False), ("1 2", False), ("3/4", False), ("#### 3/4", False), ("1,5", False),
    ("####", False), ("a", False), ("", False), (r"\boxed{x}", False), ("2:45", False), (r"\frac{3}{4}", False)])
def test_plain(answer, fits):
    assert plain(answer) is fits


PIECES = ("0", "3", "12", "000", "500", ",", ".", " ", "'", "/", ":", "-", "–", "$", "%", "####", "\n", r"\,", "{,}",
          r"\frac{", "}", "^", "_", "*", r"\boxed{", "e3", "x", "=", "π")


def test_a_plain_answer_is_right_and_a_number_is_read_alike_wherever_it_ends():
    draw = random.Random(0)
    texts = ["".join(draw.choices(PIECES, k=draw.randint(1, 6))) for _ in range(20_000)]
    kept = [text for text in texts if plain(text)]
    assert len(kept) > 500
    for text in kept:
        assert numeric(text, text), text
        assert numeric(f"{number(text)}", text) or "E" in f"{number(text)}", text
        assert "#" in text or "\\boxed" in text or numeric(f"So it is {text}", text), text


def test_a_fraction_a_time_or_a_decimal_comma_is_never_read_as_its_end():
    draw = random.Random(1)
    for _ in range(2000):
        one, other = draw.randint(0, 99), draw.randint(0, 99)
        text = draw.choice(("{}/{}", "{}:{}", "{},{}", "\\frac{{{}}}{{{}}}", "{} / {}", "{}^{}",
                            "-{}/{}")).format(one, other)
        for said in (text, f"so it is {text}.", f"#### {text}", f"\\boxed{{{text}}}", f"${text}$"):
            assert number(said) is None and not plain(said), said
