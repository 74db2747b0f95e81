"""Surrogates of whole completions: regressions of log-ratios on rewards, and a classifier of right and wrong ones."""

from labcore.catalog.choice import Letter, Surrogate, There
from labcore.catalog.knob import Knob
from labcore.catalog.metric import Metric

REGRESSION_BETA = Knob(
    "regression_beta", "Temperature of the regression", 0.1, "Reward per nat of log-ratio in the fit. Higher: the "
    "policy stays closer to the policy in the log-ratio's denominator. Lower: it moves further for the same "
    "reward.", "live",
    1e-4, 100.0, (0.01, 1.0), r"\beta_R", "reward/nat", scale="log", group="clip", aliases="gvpo_beta beta2")
CLASSIFIER_TEMPERATURE = Knob(
    "classifier_temperature", "Temperature of the classifier", 0.5, "Higher: a softer boundary between right and wrong "
    "completions, and a smaller gradient. Lower: a larger gradient, at most 1 / temperature for a completion.", "live",
    1e-3, 100.0, (0.1, 2.0), r"\tau_R", "nats/token", scale="log", group="clip", aliases="real_tau")

REGRESSIONS = (
    Surrogate("centred_regression", "squared distance of the group's centred log-ratios from its centred rewards",
              r"-\tfrac{1}{2}\tfrac{G}{G-1}\big(\beta_R(s_i-\bar s_g) - \hat A\big)^2", needs_ratio=True,
              own_ratio="token", group=True, whole=True, summed=True, weighs=True, knobs=(REGRESSION_BETA,),
              letters=(Letter("s_i", r"s_i = \textstyle\sum_t\log\rho_t"),),
              bias="Scale: the gradient is multiplied by the temperature of the regression.",
              elsewhere=(There("verl", note="only in a fork of verl by its authors (loss_mode gvpo): no equivalent of "
                               "GVPO in verl itself"),
                         There("OpenRLHF GRPOTrainer RLOOTrainer ms-swift", note="no regression of log-ratios on "
                               "rewards: no equivalent of GVPO")),
              metric=Metric("surrogate/centred_regression", "Surrogate, centred regression", "reward²", "Minus half "
                            "the squared distance of centred log-ratios from centred rewards.", r"-L^{GVPO}",
                            "Rises towards 0 within a batch.")),
    Surrogate("regression", "squared distance of the log-ratio to the reference from the advantage",
              r"-\big(\beta_R\textstyle\sum_t\log\tfrac{\pi_\theta}{\pi_{ref}} - \hat A\big)^2", whole=True,
              summed=True, knobs=(REGRESSION_BETA,),
              bias="Direction: the squared distance also has the gradient of the KL to the reference.",
              elsewhere=(There("verl OpenRLHF ms-swift", note="no regression of log-ratios on rewards: no equivalent "
                               "of A*-PO"),
                         There("GRPOTrainer RLOOTrainer", note="use TRL's experimental A2POTrainer, which this script "
                               "does not write"))),
    Surrogate("classifier", "classifier of right and wrong completions by their mean log-ratio",
              r"-\log\big(1+\textstyle\sum_{G_+}e^{-\bar s/\tau_R}\big)-\log\big(1+\sum_{G_-}e^{\bar s/\tau_R}\big)",
              needs_ratio=True, own_ratio="token", group=True, whole=True, knobs=(CLASSIFIER_TEMPERATURE,),
              letters=(Letter("G_+", r"G_+ = \{i: \hat A_i > \bar A_g\},\quad \bar s = "
                              r"\tfrac1T\textstyle\sum_t\log\rho_t"),),
              bias="Direction: the weight of a completion depends only on whether it is above or below the group's "
              "mean, and shrinks as the policy moves it further to that side.",
              elsewhere=(There("verl", note="only in a fork of verl by its authors (loss_type real): no equivalent of "
                               "REAL in verl itself"),
                         There("ms-swift", {"loss_type": "real"}, aggregates="sequence_mean_token_mean", knobs={
                             "classifier_temperature": "real_tau"}),
                         There("OpenRLHF GRPOTrainer RLOOTrainer", note="no classifier of completions: no equivalent "
                               "of REAL, which ms-swift has (loss_type real)")),
              metric=Metric("surrogate/classifier", "Surrogate, classifier", "nats", "Minus the loss of the classifier "
                            "of right and wrong completions.", r"-L^{REAL}", "Rises within a batch.")),
)
