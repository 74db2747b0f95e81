"""What runs on a GPU only, by torch anywhere: the kernels of an update, and attention of rows side by side."""

from itertools import pairwise

import torch
from torch.nn import functional as F

from labcore.maths import gpu


def attend_apart(monkeypatch):
    """Attention of one row after the other, in place of torch's for CUDA."""
    def attend(q, k, v, rows, scale):
        ends = rows.bounds.tolist()
        assert rows.longest == max(stop - start for start, stop in pairwise(ends))
        found = torch.cat([F.scaled_dot_product_attention(
            *(each[start:stop].transpose(0, 1) for each in (q, k, v)), is_causal=True, scale=scale,
            enable_gqa=True).transpose(0, 1) for start, stop in pairwise(ends)])
        return found, found.new_empty(1)

    def attend_back(pull, q, k, v, out, totals, rows, scale):
        return torch.func.vjp(lambda *parts: attend(*parts, rows, scale)[0], q, k, v)[1](pull)
    monkeypatch.setattr(gpu, "rows_attend", attend)
    monkeypatch.setattr(gpu, "rows_attend_back", attend_back)


class Twins:
    """What the kernels of `gpu_kernels` compute, by torch."""

    @staticmethod
    def add_norm(x, delta, scale, eps):
        x = x if delta is None else x + delta
        return x, F.rms_norm(x, scale.shape, scale, eps)

    @staticmethod
    def add_norm_back(past, pull, x, scale, eps):
        slope, of_scale = torch.func.vjp(lambda x, scale: F.rms_norm(x, scale.shape, scale, eps), x, scale)[1](pull)
        return past + slope, of_scale

    @staticmethod
    def swiglu(gate, up):
        return F.silu(gate) * up

    @staticmethod
    def swiglu_back(gate, up, pull):
        result, back = torch.func.vjp(Twins.swiglu, gate, up)
        return torch.cat(back(pull), -1), result

    @staticmethod
    def turn_(x, heads, cos, sin, sign):
        first, second = x[:, :heads].chunk(2, -1)
        cos, sin = cos[:, None], sign * sin[:, None]
        x[:, :heads] = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
        return x
