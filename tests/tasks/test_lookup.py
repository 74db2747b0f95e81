"""Arithmetic with a tool: calls get values, other turns are answers, and nothing is run."""

import pytest

from labcore.tasks.lookup import Calculator, calculated


def test_a_call_gets_the_value_and_another_turn_is_the_answer():
    world = Calculator()
    assert world.reset({"question": "37*12+5"}) == "37*12+5="
    assert world.step("<tool>37*12</tool>") == ("444", 0, False)
    assert world.step("so <tool>(444+5)*1</tool> it is") == ("449", 0, False)
    assert world.step(" 449 ") == ("right", 1, True)
    assert world.step("450") == ("wrong", 0, True)


@pytest.mark.parametrize("expression", ["", "1/2", "2**99999", "__import__('os').system('x')", "9" * 50, "1+", "(" * 30,
                                        "1 + 1", "0x10"])
def test_what_is_no_expression_has_no_value(expression):
    assert calculated(expression) is None
    world = Calculator()
    world.reset({"question": "1+1"})
    assert world.step(f"<tool>{expression}</tool>") == ("no value", 0, False)
