"""Operations are counted forward and backward, in one step of the warm-up alone, and compared with the speed of a
product."""

import pytest
import torch

from benchmarks import roofline, turns
from benchmarks.turns import Times, Turn


class Pipe:
    """A driver that asks for a turn of two steps, then for another one."""

    def __init__(self):
        self.asked, self.sent = [2, 2, 0], []

    def recv(self) -> int:
        return self.asked.pop(0)

    def send(self, times: Times) -> None:
        self.sent.append(times)


@pytest.mark.parametrize("counted, dtype", [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_the_last_step_of_the_warm_up_counts_its_products(counted, dtype, monkeypatch):
    asked = []
    monkeypatch.setattr(roofline, "peak", lambda dtype: asked.append(dtype) or 5e9)
    turn, weight = Turn(pipe := Pipe(), counted), torch.rand(3, 4, dtype=dtype, requires_grad=True)
    rows = torch.rand(2, 3, dtype=dtype, requires_grad=True)
    turn.ready()
    with pytest.raises(SystemExit):
        while True:
            for _ in range(9 if not pipe.sent and not turn.wall else 1):  # the first step does more, and is not counted
                (rows @ weight).sum().backward()
            turn.step_done()
    first, second = pipe.sent
    forward = 2 * 2 * 3 * 4
    assert first.operations == 3 * forward, "the product, and one for the gradient of each of its factors"
    assert first.peak_operations == 5e9 and asked == [dtype]
    assert 0 < first.products < 1
    assert (second.operations, second.peak_operations, second.products) == (0, 0, 0)


def test_the_share_of_a_step_is_that_of_its_products_at_their_own_speed():
    [row] = turns.rows({"lab-fp32": [Times([0.5], [0.4], 9.0)]})
    said = turns.bound(row, Times([1.0], [1.0], 9.0, operations=10e9, peak_operations=50e9, products=0.3))
    assert "10.00 GFLOP" in said and "50 GFLOP/s" in said and "200 ms" in said and "50%" in said
    assert "300 ms, 75%" in said


def test_the_peak_is_that_of_the_fastest_product(monkeypatch):
    clock = iter([0.0, 3.0, 10.0, 12.0, 20.0, 24.0, 30.0, 35.0, 40.0, 42.5])
    monkeypatch.setattr(roofline.time, "process_time", lambda: next(clock))
    assert roofline.peak(torch.float32, side=4) == 2 * 4 ** 3 / 2.0


def test_every_product_of_a_step_is_made_again_as_often_as_the_step_makes_it(monkeypatch):
    made, x, weight = [], torch.rand(5, 3), torch.rand(4, 3, requires_grad=True)
    counter = roofline.Counter()
    for _ in range(2):
        torch.addmm(torch.rand(5, 4), x, weight.T).sum().backward()
    counter.stop()
    monkeypatch.setattr(roofline, "fastest", lambda do: made.append(tuple(do().shape)) or 0.5)
    assert counter.alone() == 4 * 0.5 and sorted(made) == [(4, 3), (5, 4)]
