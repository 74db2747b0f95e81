import pytest
import torch

from labcore.maths.masked import centred, extremes, masked_mean, masked_sum, masked_var, masked_whiten

X = torch.tensor([[1.0, 2.0, 9.0], [4.0, 9.0, 9.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, False], [True, False, False]])


def test_by_hand(close):
    close(masked_sum(X, MASK), 7)
    close(masked_mean(X, MASK), 7 / 3)
    close(masked_mean(X, MASK, dim=1), [1.5, 4])
    close(masked_var(X, MASK), 7 / 3)  # of 1, 2, 4
    close(masked_var(X, MASK, ddof=0), 14 / 9)
    close(masked_whiten(torch.tensor([[1.0, 3.0]], dtype=torch.float64), torch.ones(1, 2, dtype=bool), eps=0.0),
          [[-(0.5**0.5), 0.5**0.5]])


def test_extremes_and_centred_by_hand(close):
    lowest, highest = extremes(X, 1, MASK)
    assert (lowest.tolist(), highest.tolist()) == ([[1], [4]], [[2], [4]])
    lowest, highest = extremes(torch.tensor([[1.0, torch.nan, 3.0], [torch.nan] * 3]), 1)
    assert (lowest.tolist(), highest.tolist()) == ([[1], [torch.inf]], [[3], [-torch.inf]])
    close(centred(X, MASK, 1), [[-0.5, 0.5, 0], [0, 0, 0]])
    close(centred(X, MASK), [[-4 / 3, -1 / 3, 0], [5 / 3, 0, 0]])


@pytest.mark.parametrize("shift_mean, value", [(True, 0.0), (False, 8.1)])
def test_what_is_all_equal_has_no_spread_however_its_mean_rounds(shift_mean, value):
    """The mean of 8.1 in float32 is 1e-6 away, and √1e-8 in the denominator would make that 0.01."""
    values, mask = torch.full((256, 3), 8.1), torch.arange(3)[None].expand(256, 3) < 2
    assert masked_mean(values, mask) != values[0, 0], "else this proves nothing"
    whitened = masked_whiten(values, mask, shift_mean)
    torch.testing.assert_close(whitened, value * mask.float(), rtol=1e-6, atol=0)


def test_whiten_gives_mean_0_and_spread_1(close, generator):
    values = 5 + 3 * torch.randn(8, 5, generator=generator, dtype=torch.float64)
    mask = torch.rand(8, 5, generator=generator) < 0.7
    whitened = masked_whiten(values, mask, eps=0.0)
    close(whitened[mask].mean(), 0)
    close(whitened[mask].var(), 1)
    kept_mean = masked_whiten(values, mask, shift_mean=False, eps=0.0)
    close(kept_mean[mask].mean(), values[mask].mean())
    close(kept_mean[mask].var(), 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_matches_trl(golden, close, dtype):
    reference = golden("trl_ppo")["utils"]
    x, mask = torch.tensor(reference["x"], dtype=dtype), torch.tensor(reference["mask"]).bool()
    close(masked_mean(x, mask), reference["masked_mean"])
    close(masked_mean(x, mask, dim=1), reference["masked_mean_axis1"])
    close(masked_var(x, mask, ddof=0), reference["masked_var_biased"])
    # TRL takes n/(n − 1) of the unbiased variance in float32, whatever the dtype of x.
    bessel = float(torch.tensor(14.0) / 13) / (14 / 13)
    close(masked_var(x, mask) * bessel, reference["masked_var"])
    whitened, kept_mean = masked_whiten(x, mask), masked_whiten(x, mask, shift_mean=False)
    close(whitened[mask], torch.tensor(reference["masked_whiten"])[mask], torch.float32)
    close(kept_mean[mask], torch.tensor(reference["masked_whiten_noshift"])[mask], torch.float32)
    assert (whitened[~mask] == 0).all() and (kept_mean[~mask] == 0).all()


def test_what_does_not_count_is_never_read(close):
    poisoned = torch.where(MASK, X, torch.nan)
    for function in (masked_sum, masked_mean, masked_var, masked_whiten):
        assert torch.equal(function(poisoned, MASK), function(torch.where(MASK, X, 7.0), MASK))


def test_nothing_to_count_is_0():
    nothing = torch.zeros_like(MASK)
    for function in (masked_sum, masked_mean, masked_var, masked_whiten):
        assert (function(X, nothing) == 0).all()


def test_a_single_value_whitens_to_0():
    one = torch.tensor([[True, False, False], [False, False, False]])
    assert (masked_whiten(X, one) == 0).all()


def test_a_row_without_a_counted_token_is_0_beside_others(close):
    mask = torch.cat([MASK, torch.zeros(1, 3, dtype=bool)])
    values = torch.cat([X, torch.full((1, 3), torch.nan, dtype=torch.float64)]).requires_grad_()
    close(masked_sum(values, mask, dim=1), [3, 4, 0])
    close(masked_mean(values, mask, dim=1), [1.5, 4, 0])
    close(masked_var(values, mask, dim=1), [0.5, 0, 0])
    whitened = masked_whiten(values, mask)
    assert (whitened[2] == 0).all()
    close(whitened[:2], masked_whiten(X, MASK))
    gradient = torch.autograd.grad(masked_mean(values, mask, dim=1).sum(), values)[0]
    close(gradient, [[0.5, 0.5, 0], [1, 0, 0], [0, 0, 0]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_differs_by_rounding_alone_is_equal(dtype):
    """0.1 + 0.2 and 0.3 are one number, and so is a sum in another order; a thousandth of it is a difference."""
    alike = torch.tensor([0.1, 0.3, 0.3], dtype=dtype) + torch.tensor([0.2, 0.0, 0.0], dtype=dtype)
    alike[2] = torch.nextafter(alike[1], torch.tensor(1.0, dtype=dtype))
    everything = torch.ones(3, dtype=torch.bool)
    assert alike[2] > alike[1] and not centred(alike, everything).any()
    assert centred(alike * torch.tensor([1.0, 1.0, 1.001], dtype=dtype), everything).all()
