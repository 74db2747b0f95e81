"""Numbers in texts: which number a completion ends in, and whether an answer is a number and nothing else.

Only a whole plain number counts. A number that is a part of something else (a fraction, a time, a decimal comma, a
power, a root) is no number, because reading 3/4 as 4 would accept 1/4 for it.
"""

from __future__ import annotations

import re
from decimal import Decimal

# A sign counts unless it follows a number or a word ("20-5" ends in 5). Thousands are groups of three with one mark.
_NUMBER = re.compile(
    r"(?P<head>(?:(?<![\w)\]%.])[-−–+])?[$€£]?(?:(?<=[$€£])[-−–+])?)"
    r"(?P<digits>(?:[1-9][0-9]{0,2}(?P<mark>,\\!|\{,\}|\\[, ]|[,'’_ \u00a0\u2009\u202f])[0-9]{3}(?:(?P=mark)[0-9]{3})*"
    r"(?![0-9])|[0-9]+)(?:\.[0-9]+)?|(?<![0-9])\.[0-9]+)(?P<power>[eE][-+]?[0-9]{1,3}(?!\w))?")
# With one of these right before or right behind it, a number is a part of something else.
_BEFORE = re.compile(r"(?:[/⁄∕^√][^\S\n]?[{(]?|[0-9](?:[:.'’,_]|\{,\}|,\\!|\\[,;!])|[0-9)]\*\*|\w_\{?|[0-9}\]]\{|\}"
                     r"|\\[a-z]*(?:frac|sqrt|binom)[^\S\n]?[{\[]?)\Z")
_AFTER = re.compile(r"[}$]?[^\S\n]?[/⁄∕][^\S\n]?[-−–{(]*[0-9]|(?:[:.'’,_]|\{,\}|,\\!|\\[,;!])[0-9]"
                    r"|\}?\^(?!\{?(?:\\circ|°))|\*\*[0-9]|\}\{|[^\S\n]?(?:[√π½⅓⅔¼¾⅛]|\\(?!text|math|mbox|q?quad|end)[A-Za-z])")
_CONTEXT = 16  # characters before a number, more than _BEFORE needs
_BOXED = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")


def numeric(completion: str, answer: str) -> bool:
    """True if both texts have the same number (`number`); False if either has none.

    >>> numeric("so she makes $1,018.00 a day.", "9 * 2 = 18\\n#### 1018"), numeric("so it is 1/4", "3/4")
    (True, False)
    """
    found, wanted = number(completion), number(answer)
    return found is not None and found == wanted


def number(text: str) -> Decimal | None:
    r"""The number after the first "####", or else in the last \\boxed{}, or else the last number of a text.

    None where there is none, where it is a part of something else, and where a box has several. Signs, currency
    signs, marks between thousands (1,000 1 000 1'000 1{,}000 1\\,000), decimals and powers of ten are read; a percent
    sign is dropped, so 50% is 50.

    Source: Cobbe et al. 2021, arXiv:2110.14168, whose evaluation takes the first "####".

    >>> [str(number(text)) for text in ("2 + 3 = 5\n#### -1,234.5", "from 3 to 4.", "20-5", "−$.50", "3/4", "2:45")]
    ['-1234.5', '4', '5', '-0.50', 'None', 'None']
    >>> str(number(r"\\boxed{42}. I checked 3 times."))
    '42'
    """
    _, _, after = text.partition("####")
    line = after.strip().split("\n")[0]
    found = _NUMBER.search(line)
    if found:
        return _value(found, line)
    boxed = _BOXED.findall(text)
    inside = boxed[-1] if boxed else text
    each = list(_NUMBER.finditer(inside))
    return _value(each[-1], inside) if each and not (boxed and each[1:]) else None


def _value(found: re.Match[str], text: str) -> Decimal | None:
    if _BEFORE.search(text[max(0, found.start() - _CONTEXT):found.start()]) or _AFTER.match(text, found.end()):
        return None
    value = Decimal(re.sub(r"[^0-9.]", "", found["digits"]) + (found["power"] or ""))
    return -value if set(found["head"]) & set("-−–") else value


def plain(answer: str) -> bool:
    r"""True if an answer is one number that `number` reads whole: by itself, after "####", or in a box.

    >>> [plain(answer) for answer in ("-1,234.5", "$18.", "9 * 2 = 18\n#### 18", "3/4", "18 eggs", "1,5", "")]
    [True, True, True, False, False, False, False]
    """
    _, marked, after = answer.partition("####")
    boxed = _BOXED.findall(answer)
    stated = after.strip().split("\n")[0] if marked else boxed[-1] if boxed else answer
    return bool(_NUMBER.fullmatch(stated.strip().removesuffix(".").removesuffix("%"))) and number(answer) is not None
