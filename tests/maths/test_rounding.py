"""Rounded weights, by hand."""

import pytest
import torch

from labcore.maths.rounding import rounded


@pytest.mark.parametrize("dtype, value, expected", [
    ("bf16", 1 + 2**-7, 1 + 2**-7), ("bf16", 1 + 2**-9, 1.0),  # 8 significant bits
    ("fp16", 1 + 2**-10, 1 + 2**-10), ("fp16", 1 + 2**-12, 1.0),  # 11
    ("fp16", 1e6, 65504.0)])
def test_a_weight_keeps_the_bits_of_its_type(dtype, value, expected):
    assert rounded(torch.tensor([value]), dtype).tolist() == [expected]


def test_int8_has_127_levels_up_to_the_largest_weight_of_each_row():
    """Of (1.27, 0.014): s = 0.01, so 0.014 is 1 level. The other row has levels of its own; a row of zeros has none."""
    weight = torch.tensor([[1.27, 0.014], [-0.00127, 0.000004], [0.0, 0.0]])
    torch.testing.assert_close(rounded(weight, "int8"), torch.tensor([[1.27, 0.01], [-0.00127, 0.0], [0.0, 0.0]]))
    vector = torch.tensor([1.0, 0.001])
    assert torch.equal(rounded(vector, "int8"), vector) and rounded(vector, "int8") is not vector
