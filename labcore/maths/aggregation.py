"""Aggregations of token losses to one number; they decide whether long completions weigh more.

Denominators are those of the whole optimizer step. A batch cut into parts of any size then gives the same gradient:
the losses of the parts are summed, never averaged. Given a part's own counts they are that part's means.
Rows that a selection leaves out are not in `total_rows`; TRL's `mask_truncated_completions` keeps them there.
"""

from __future__ import annotations

from torch import Tensor

from labcore.maths.masked import masked_mean, masked_sum


def sequence_mean_token_mean(token_losses: Tensor, completion_mask: Tensor, total_rows: int) -> Tensor:
    """L = 1/B Σ_i 1/T_i Σ_t L_it. (B, T), bool (B, T) -> ()

    Source: Shao et al. 2024, arXiv:2402.03300, eq. 3.
    """
    return masked_mean(token_losses, completion_mask, dim=1).sum() / total_rows


def token_mean(token_losses: Tensor, completion_mask: Tensor, total_tokens: int) -> Tensor:
    """L = 1/(Σ_i T_i) Σ_i Σ_t L_it. (B, T), bool (B, T) -> ()

    The number of tokens is random and correlated with the terms, so the ratio is a biased estimate, by O(1/B).

    Source: Yu et al. 2025, arXiv:2503.14476, eq. 8.
    """
    return masked_sum(token_losses, completion_mask) / max(total_tokens, 1)


def constant_length(token_losses: Tensor, completion_mask: Tensor, total_rows: int, max_new_tokens: int) -> Tensor:
    """L = 1/(B L_max) Σ_i Σ_t L_it. (B, T), bool (B, T) -> ()

    Source: Liu et al. 2025, arXiv:2503.20783, section 3.2.
    """
    return masked_sum(token_losses, completion_mask) / (total_rows * max_new_tokens)


def sequence_mean_token_sum(token_losses: Tensor, completion_mask: Tensor, total_rows: int) -> Tensor:
    """L = 1/B Σ_i Σ_t L_it. (B, T), bool (B, T) -> ()

    Source: Williams 1992, Machine Learning 8:229 (the log-probability of a sequence is the sum over its tokens).
    """
    return masked_sum(token_losses, completion_mask) / total_rows
