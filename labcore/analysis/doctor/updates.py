"""Rules about updates: their size, the clip, the critic, and the distance to the reference."""

from __future__ import annotations

from itertools import pairwise

from labcore.analysis.doctor.finding import Finding, Severity
from labcore.analysis.doctor.run_view import RunView, number, share
from labcore.analysis.doctor.signal import no_signal, stronger_kl
from labcore.catalog import choices, inactive
from labcore.catalog.conditions import ONE_UPDATE, SAME_DTYPE, delayed
from labcore.catalog.metrics import METRICS

# A clip share of 0.1 to 0.2 is usual for PPO (Huang et al. 2022, "37 implementation details"); above 0.3 the passes
# over a batch mostly fight the clip. Ratios of sequences are clipped by whole completions, many of them by design.
CLIPPED = 0.3
CLIPPED_SEQUENCES = 0.5  # a starting guess
JUMP = 5.0  # times its own median before: far beyond the noise of a batch
JUMP_KL = 0.3  # nats/token: below it a jump changes little that can be seen in answers
LEAP = 1.0  # nats/token by one step: usual updates move a policy by hundredths, and k3 is noisy by tenths
GRADIENT_JUMP = 10.0
GRADIENT = 1.0  # the usual gradient clip; a shorter gradient is not clipped
# Spinning Up stops PPO's passes at 1.5 × 0.01 nats; ten times that is a leap.
STEP_KL = 0.15
# One nat per token: an answer of seven tokens is a thousand times likelier than under the reference. A starting guess.
KL_FAR = 1.0
KL_GROWTH, KL_GROWN = 3.0, 0.3  # tripled within so many rows, and no longer small (nats/token)
GROWS_WITHIN = 20
CRITIC = 0.0  # explained variance of a constant guess: below it the baseline adds noise
BEST_WITHIN = 0.1  # a mean return within this share of the best counts as equal; the noise of ten steps is as large
ENOUGH_TINY = 40  # rows without a clipped token before updates are taken for tiny
AT_OPTIMUM = 0.01  # nats/completion between the policy and π*: a hundred samples can hardly tell them apart
TINY = 1.02  # the largest ratio of a batch: a tenth of the usual clip range ε = 0.2
ENOUGH = 20  # rows without a clipped token before it is taken for one update per batch
LOSS_ZERO = 0.01  # of the gradient's norm
GRADIENT_LIVES = 0.01
# A quarter of the usual clip range ε = 0.2: the ratio is off by this much before anything was learnt.
MISMATCH = 0.05
MISMATCH_LARGEST = 0.2  # the largest ratio of a batch leaves the usual clip range
FEW = 5  # rows
EFFECTIVE = 0.5  # half of the tokens' weight is lost to its spread: a starting guess
LOSSES = ("loss", "policy_loss", "value_loss", "grad_norm", "kl", "entropy", "reward")  # NaN in them ends all learning
_UPDATES = ("updates_per_batch", "epochs", "mini_batches")
STEP_SIZE = ("learning_rate", *_UPDATES)  # knobs: lower ones make smaller steps
_ONE = (("updates_per_batch", 2), ("epochs", 2))
# Knobs of what acts on the ratio.
_CLIPS = ("clip_range", *choices.own_knobs(choices.SURROGATE))


def not_finite(view: RunView) -> Finding | None:
    """A loss, or one of its terms, is NaN or infinite from some step on.

    A table may have NaN where a row has no number. So if a metric became finite again before, it must now be NaN for
    longer than ever before.
    """
    found = [(key, each) for key in LOSSES if (each := view.memory.not_finite.get(key)) and each.count > each.longest]
    if not found:
        return None
    began = min(each.since for _, each in found)
    said = ", ".join(f"{METRICS[key].inline} {_not_finite(each.value)} from step {each.since:,} on"
                     for key, each in found)
    return Finding(f"{METRICS[found[0][0]].label} is {_not_finite(found[0][1].value)}", said,
                   f"Fork from a checkpoint before step {began:,} with a lower learning rate.", began=began,
                   **view.scaled("learning_rate", 1 / 3))


def _not_finite(value: float) -> str:
    return "NaN" if value != value else "infinite"


def loss_is_zero(view: RunView) -> Finding | None:
    """A note that on policy, with centred advantages, the loss is near 0 whatever the run learns."""
    if not (_one_update(view) if view.knobs else _seems_on_policy(view)):
        return None
    loss, norm = (abs(view["loss"].mean()), view["grad_norm"].mean())
    if norm < GRADIENT_LIVES or not view.below(loss, LOSS_ZERO * norm):
        return None
    return Finding("A loss near 0 is normal here", f"loss {number(view['loss'].mean())}, gradient norm "
                   f"{number(norm)} in {view.when('loss')}; with centred advantages and ratios of 1 the terms "
                   "cancel and the gradient does not", "Nothing to fix: watch the reward.")


def clip_cannot_act(view: RunView) -> Finding | None:
    """One update per batch: every ratio is 1. Not where these are the defaults, with which nobody expects a clip."""
    if view.knobs:
        if not _one_update(view) or view.usual(*_UPDATES, *_CLIPS):
            return None
        evidence = ONE_UPDATE
    elif view["clip_frac/region"].count < ENOUGH or any(view["clip_frac/region"].last(40)):
        return None
    else:
        evidence = f"no token was clipped in {view.when('clip_frac/region', 40)}, as with one update per batch"
    fix = next((view.fix(key, value) for key, value in _ONE if key in view.declared), {})
    return Finding("The clip has no effect", evidence, "Use two or more updates per batch, or keep one and ignore the "
                   "clip.",
                   **fix)


def tiny_updates(view: RunView) -> Finding | None:
    """Several updates per batch hardly move the policy. Not if the policy has nowhere left to go."""
    without = "reward" in view and "reward_std" in view and no_signal(view)
    if int(view.knobs.get("updates_per_batch", 1)) < 2 or view.solved or without:
        return None
    if "exact/distance" in view and view["exact/distance"].mean(1) < AT_OPTIMUM:
        return None
    largest = view["ratio/max"].median()
    if any(view["clip_frac/region"].last(ENOUGH_TINY)) or largest >= TINY:
        return None
    return Finding("The updates are tiny", f"no token was clipped in {view.when('clip_frac/region', ENOUGH_TINY)}, "
                   f"and the largest ratio is {largest:.4g}", "Raise the learning rate.",
                   **view.scaled("learning_rate", 3))


def _seems_on_policy(view: RunView) -> bool:
    """True if the metrics of another tool look on-policy: there is a reward, and no token is clipped."""
    clipped = view["clip_frac/region"].last(40) if "clip_frac/region" in view else []
    return "reward" in view and "rewards/accuracies" not in view and not any(clipped)


def _one_update(view: RunView) -> bool:
    """True if each batch gets one update, by an algorithm that has something to clip."""
    return any(key in view.declared and inactive.reason(key, view.knobs) == ONE_UPDATE for key in _CLIPS)


def step_too_big(view: RunView) -> Finding | None:
    """The newest updates went much further than those before, or the clip has to hold most of them."""
    said = next(filter(None, (sign(view) for sign in (_clipped, _leap, _kl_jump, _kl_step, _gradient))), "")
    if not said:
        return None
    return Finding("The steps are too big", said, "Lower the learning rate, or use fewer updates per batch.",
                   **view.scaled("learning_rate", 1 / 3))


def _clipped(view: RunView) -> str:
    if delayed(view.knobs):  # the finding `stale` reports it
        return ""
    return _clip_share(view)


def _clip_share(view: RunView) -> str:
    found = view["clip_frac/region"].mean(5) if "clip_frac/region" in view else 0.0
    sequences = str(view.knobs.get("ratio", "")).startswith("sequence")
    return (f"{share(found)} of the tokens or actions clipped in {view.when('clip_frac/region', 5)}"
            if view.above(found, CLIPPED_SEQUENCES if sequences else CLIPPED) else "")


def _leap(view: RunView) -> str:
    """A KL that a single step more than doubled, by a nat per token at least."""
    found = view["kl"].last() if "kl" in view else []
    leaps = [(now, before) for before, now in pairwise(found) if now > 2 * before and now - before > LEAP]
    if not leaps:
        return ""
    now, before = leaps[-1]
    return f"one step took the KL to the reference from {number(before)} to {number(now)} nats/token, in " \
           f"{view.when('kl')}"


def _kl_jump(view: RunView) -> str:
    if "kl" not in view or view["kl"].count < 20:
        return ""
    before, now = view["kl"].median(20, before=3), view["kl"].mean(3)
    jumped = view.above(now, max(JUMP_KL, JUMP * before))
    return f"KL to the reference {number(before)} → {number(now)} nats/token at {view.when('kl', 3)}" \
        if jumped else ""


def _kl_step(view: RunView) -> str:
    found = view["kl/step"].median(5) if "kl/step" in view else 0.0
    return f"KL of the step {number(found)} nats in {view.when('kl/step', 5)}" \
        if view.above(found, STEP_KL) else ""


def _gradient(view: RunView) -> str:
    if "grad_norm" not in view or view["grad_norm"].count < 25:
        return ""
    before, now = view["grad_norm"].median(20, before=5), view["grad_norm"].median(5)
    jumped = before > 0 and view.above(now, max(GRADIENT, GRADIENT_JUMP * before))
    return f"gradient norm {number(before)} → {number(now)} in {view.when('grad_norm', 5)}" if jumped else ""


def kl_runaway(view: RunView) -> Finding | None:
    """The policy is far from the reference, or moves away faster and faster. Not if the optimum is known and the policy
    approaches it, because then the optimum itself is that far away."""
    if "exact/distance" in view and view["exact/distance"].mean(5) < view["exact/distance"].mean(before=20):
        return None
    severity: Severity = "problem"
    now, before = view["kl"].mean(5), view["kl"].mean(before=GROWS_WITHIN)
    grows = now > KL_GROWN and before > 0 and view.above(now, KL_GROWTH * before)
    if grows:
        verdict, said = "The KL grows too fast", (
            f"{number(before)} → {number(now)} nats/token within {view['kl'].span(GROWS_WITHIN)} steps")
    elif view.above(now, KL_FAR):
        verdict, said = "The policy is far from the reference", f"KL {number(now)} nats/token"
        if view.knobs.get("kl_placement") == "off":  # as its algorithm has it: DAPO, arXiv:2503.14476, section 2.3
            severity = "warning"
    else:
        return None
    return Finding(verdict, f"{said} in {view.when('kl', 5)}", "Use a stronger KL penalty or a lower learning rate.",
                   severity=severity, **(stronger_kl(view) or view.scaled("learning_rate", 1 / 3)))


def critic_lags(view: RunView) -> Finding | None:
    """The critic predicts returns worse than a constant would. Once nearly all answers are right, or every episode goes
    as well as the best did, returns hardly vary and there is little to explain."""
    found = view["explained_variance"].median()
    if view.solved or _at_its_best(view):
        return None
    if not (found < CRITIC or (view.held and found < 0.1)):
        return None
    return Finding("The critic lags behind", f"explained variance {number(found)} in "
                   f"{view.when('explained_variance')}; below 0 is worse than a constant guess",
                   "Raise the critic's learning rate, or lower the policy's.",
                   **view.scaled("critic_learning_rate", 3))


def _at_its_best(view: RunView) -> bool:
    """True if episodes go about as well as they ever did."""
    if "episode_return" not in view or not view["episode_return"].blocks:
        return False
    returns = view["episode_return"]
    _, best = returns.peak()
    return returns.mean() >= best - BEST_WITHIN * abs(best)


def precision_mismatch(view: RunView) -> Finding | None:
    """The sampler and the trainer give the same token different log-probabilities, with the same policy."""
    if delayed(view.knobs):
        return None
    apart, largest = "sampling/logp_difference", "ratio/max"
    if apart in view and view[apart].count >= FEW:
        found = view[apart].mean()
        holds, said = view.above(found, MISMATCH), f"log-probabilities differ by {number(found)} nats/token"
    elif largest in view and view[largest].count >= FEW and _one_update(view):
        apart, found = largest, view[largest].median()
        holds, said = view.above(found - 1, MISMATCH_LARGEST), f"ratios reach {number(found)} where all should be 1"
    else:
        return None
    if not holds:
        return None
    return Finding("Sampler and trainer disagree", f"{said} in {view.when(apart)}, before any update on the batch",
                   "Use full precision, the same weights on both sides, or truncated importance weights.",
                   **(view.fix("sampler_dtype", SAME_DTYPE) or view.fix("dtype", "fp32")))


def stale(view: RunView) -> Finding | None:
    """The samples are so old that the effective sample size is small, or that the clip removes many tokens. A clip of
    whole completions is left out: its narrow bounds remove many completions by design."""
    if not delayed(view.knobs):
        return None
    kept, age = view["sampling/effective_frac"].mean(FEW), view["sample_age/mean"].mean(FEW)
    said = "" if str(view.knobs.get("ratio", "")).startswith("sequence") else _clip_share(view)
    if kept < EFFECTIVE or (view.held and kept < EFFECTIVE + 0.1):
        when = view.when("sampling/effective_frac", FEW)
        said = f"the effective sample size is {share(kept)} of the tokens in {when}"
    if not said:
        return None
    return Finding("The samples are too old", f"{said}; the batches are {number(age)} updates old on average",
                   "Use a lower staleness, less replay, or a lower learning rate.",
                   **(view.scaled("staleness", 1 / 2) or view.scaled("replay_share", 1 / 2)))
