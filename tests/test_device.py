"""Which device a run uses, and how its random numbers go on."""

import pytest
import torch

from labcore.device import pick_device, resume_generator
from labcore.errors import LabError
from tests.words import says


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert pick_device("auto") == pick_device("cpu") == torch.device("cpu")
    for name in ("cuda", "mps"):
        with pytest.raises(LabError, match=f"no {name} device: use auto or cpu"):
            pick_device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("auto") == torch.device("cuda")


def test_cuda_is_kept_from_attention_that_plans_for_every_shape(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        pick_device("cpu")
        assert torch.backends.cuda.cudnn_sdp_enabled()
        pick_device("cuda")
        assert not torch.backends.cuda.cudnn_sdp_enabled() and torch.backends.cuda.flash_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def test_random_numbers_go_on_on_the_same_kind_of_device_and_begin_anew_on_another():
    first, same, other = (torch.Generator().manual_seed(seed) for seed in (1, 2, 3))
    saved = first.get_state()
    assert resume_generator(same, saved, (4, 5)) == [] and torch.equal(same.get_state(), saved)
    told = resume_generator(other, saved[:16], (4, 5))  # a GPU's state has 16 bytes, a processor's thousands
    assert [says(each, "another kind of device", "random numbers restart") for each in told] == [True]
    again, elsewhere = torch.Generator(), torch.Generator()
    resume_generator(again, saved[:16], (4, 5))
    resume_generator(elsewhere, saved[:16], (4, 6))
    assert torch.equal(again.get_state(), other.get_state())
    assert not torch.equal(elsewhere.get_state(), other.get_state())
