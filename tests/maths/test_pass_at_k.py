"""pass@k: numbers by hand, every subset of k samples, and its limits."""

from itertools import combinations

import pytest
import torch

from labcore.maths.pass_at_k import pass_at_k
from tests.every import every


def test_by_hand():
    # n = 5, c = 2, k = 2: of C(5, 2) = 10 pairs C(3, 2) = 3 have no right one
    assert pass_at_k(torch.tensor([2]), 5, 2).tolist() == pytest.approx([0.7])
    # n = 4, c = 1, k = 3: of C(4, 3) = 4 triples one has no right one
    assert pass_at_k(torch.tensor([1]), 4, 3).tolist() == pytest.approx([0.75])


@every(("samples", "k"), [(n, k) for n in range(1, 7) for k in range(1, n + 1)])
def test_it_is_the_share_of_all_subsets_with_a_right_sample(samples, k):
    subsets = list(combinations(range(samples), k))
    expected = [sum(any(place < right for place in subset) for subset in subsets) / len(subsets)
                for right in range(samples + 1)]
    assert pass_at_k(torch.arange(samples + 1), samples, k).tolist() == pytest.approx(expected)


def test_one_sample_is_the_accuracy_and_many_do_not_overflow():
    right = torch.tensor([0, 3, 64])
    assert pass_at_k(right, 64, 1).tolist() == pytest.approx([0, 3 / 64, 1])
    assert pass_at_k(torch.tensor([1]), 5000, 2500).tolist() == pytest.approx([0.5])


def test_it_is_unbiased():
    """Its mean over all outcomes of n samples of success p is 1 − (1 − p)^k."""
    p, n, k = 0.3, 6, 4
    right = torch.arange(n + 1)
    likely = torch.distributions.Binomial(n, torch.tensor(p, dtype=torch.float64)).log_prob(right.double()).exp()
    assert float((likely * pass_at_k(right, n, k)).sum()) == pytest.approx(1 - (1 - p) ** k)


@pytest.mark.parametrize("k", [0, 5])
def test_more_completions_than_there_are_samples_cannot_be_asked_for(k):
    with pytest.raises(ValueError, match="samples or more"):
        pass_at_k(torch.tensor([1]), 4, k)
