"""The callback for trainers of TRL: it sends a trainer's metrics, settings and state to the lab.

It imports neither TRL nor transformers and uses only the attributes of the trainer. Every hook catches exceptions, so
an error in the callback is reported once and never stops the training.
"""

from __future__ import annotations

import functools
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import PurePath
from pkgutil import resolve_name
from types import FrameType
from typing import Any

from labcore.watch import Watch
from labcore.watch.trl.given import Given
from labcore.watch.trl.rollouts import Rollouts, Wrapped

# Hyperparameters that are sent if the trainer has them, under TRL's names.
SETTINGS = (
    "learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon",
    "max_grad_norm", "optim", "bf16", "gradient_checkpointing", "per_device_train_batch_size",
    "gradient_accumulation_steps", "max_steps", "num_train_epochs", "seed", "beta", "epsilon", "epsilon_high", "delta",
    "num_generations", "num_iterations", "steps_per_generation", "generation_batch_size", "temperature", "top_k",
    "top_p", "min_p", "max_completion_length", "loss_type", "loss_weights", "scale_rewards", "normalize_advantages",
    "importance_sampling_level", "reward_weights", "mask_truncated_completions", "top_entropy_quantile",
    "entropy_coef", "off_policy_mask_threshold", "use_bias_correction_kl", "use_vllm", "sync_ref_model",
    "label_smoothing", "f_divergence_type", "ld_alpha", "use_weighting", "desirable_weight", "undesirable_weight",
    "max_length", "packing", "completion_only_loss", "assistant_only_loss", "center_rewards_coefficient")
# Hyperparameters that a trainer copies from its arguments: setting -> attribute. A change is visible in the attribute.
_OWN = {"epsilon": "epsilon_low", "epsilon_high": "epsilon_high", "beta": "beta", "temperature": "temperature",
        "num_generations": "num_generations", "label_smoothing": "label_smoothing", "scale_rewards": "scale_rewards",
        "top_entropy_quantile": "top_entropy_quantile"}
# Metrics whose name has another meaning in another trainer: trainer's class -> TRL's name -> the lab's. GRPO's `kl` is
# the k3 estimate in nats/token, RLOO's is k1 in nats/token, KTO's is its reference point in nats/sequence.
RENAMED = {"RLOOTrainer": {"kl": "kl/k1"}, "KTOTrainer": {"kl": "kl/mismatched"},
           "SFTTrainer": {"eval_loss": "held_out/loss", "eval_mean_token_accuracy": "held_out/token_accuracy"}}
STATE = "rl_visual_lab"  # key in a checkpoint's trainer_state.json under which the run's id is stored


def _guarded(hook: Callable[..., None]) -> Callable[..., None]:
    """Wrap a hook so that it never raises."""
    @functools.wraps(hook)
    def called(self: LabCallback, args: Any, state: Any, control: Any, **given: Any) -> None:
        try:
            hook(self, args, state, control, **given)
        except Exception as error:
            self.failed(hook.__name__, error)
    return called


class LabCallback:
    """Send a trainer's metrics, settings and rollouts to the lab.

    `name` is the run's name in the lab. `home` is the folder of a lab on this machine (default: RL_LAB_HOME); `url` and
    `token` belong to a lab on another one. The callback sends one of `every` generations, with the tokens of its first
    `completions` completions; of a trainer that learns from given texts, so many texts of one of `every` steps. With
    `stop` the training stops when an alert of the lab asks for it; otherwise the lab cannot change the training.
    `trainer` is needed only if other code than the trainer calls the callback. `config` are settings beside those of
    the trainer.
    """

    def __init__(self, name: str = "", *, home: str | None = None, url: str | None = None, token: str | None = None,
                 every: int = 1, completions: int = 64, stop: bool = False, trainer: Any = None,
                 config: Mapping[str, Any] | None = None) -> None:
        self.name, self.stop, self.trainer, self.config = name, stop, trainer, dict(config or {})
        self.run: Watch | None = None
        self._where = {"home": home, "url": url, "token": token}
        self._sends = (every, completions, self.failed)
        self._rollouts: Rollouts | Given = Rollouts(*self._sends)
        self._kept: dict[str, Any] = {}  # the part that a checkpoint stores
        self._settings: dict[str, Any] = {}
        self._row: dict[str, float] = {}
        self._held = False  # the row waits for the numbers of an evaluation at its step
        self._began = 0.0
        self._why = ""  # why the lab asked the run to stop
        self._said: set[str] = set()
        self._wrapped = Wrapped()

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Ignore every other event of a trainer, including events of later versions."""
        if name.startswith("on_"):
            return lambda *args, **given: None
        raise AttributeError(name)

    # ------------------------------------------------------------ events of the trainer

    @_guarded
    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Start the run, or continue the run of the checkpoint."""
        if not state.is_world_process_zero:
            return
        self.trainer = self.trainer or _calling_trainer(self)
        before = state.stateful_callbacks.get(STATE) or {}
        self._settings = settings(args, self.trainer)
        self.run = Watch(self.name or args.run_name or PurePath(args.output_dir).name, tool="TRL",
                         run_id=before.get("run"), **self._where,
                         config={**described(self.trainer, given.get("model")), **self._settings, **self.config,
                                 "max_steps": state.max_steps})
        self._began = time.monotonic() - before.get("seconds", 0.0)
        self._rollouts = (Given if Given.fits(self.trainer) else Rollouts)(*self._sends)
        self._rollouts.tokens = before.get("tokens", 0)
        self._row, self._held, self._why = {}, False, ""
        self._kept = {"run": self.run.id}
        state.stateful_callbacks[STATE] = self._kept
        if state.global_step:
            self.run.event(state.global_step, f"Resumed from the checkpoint of step {state.global_step}.")
        if self.trainer is None:
            self.run.event(state.global_step, _NO_TRAINER)
            return
        self.run.event(state.global_step, self._rollouts.attach(self.trainer))
        for name in ("training_step", "evaluate"):
            self._wrapped.put(self.trainer, name, self._ending)

    @_guarded
    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Send a pending row, and settings that changed since the last step began."""
        self._send(state)
        now = settings(args, self.trainer)
        changed = {key: value for key, value in now.items() if value != self._settings.get(key)}
        if self.run is not None and changed:
            self._settings = now
            self.run.config(changed, step=state.global_step + 1)

    @_guarded
    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Send the completions after their last update, and stop if the lab asks for it."""
        if self.run is not None:
            self._rollouts.send(self.run, state.global_step)
            self._kept.update(tokens=self._rollouts.tokens, seconds=time.monotonic() - self._began)
        if self.stop:
            self._stop_if_asked(args, state, control)

    @_guarded
    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **given: Any) -> None:
        """Send the metrics of the step, together with those of an evaluation at the same step."""
        if self.run is None or not logs or "train_runtime" in logs:  # the summary of the run belongs to no step
            return
        self._row.update(self._named(logs))
        self._held = self._held or control.should_evaluate
        if not self._held:
            self._send(state)

    @_guarded
    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if self.run is not None:
            self._rollouts.send(self.run, state.global_step, ended=True)
        self._send(state)
        if self._why:
            self._end("stopped", f"The lab asked the run to stop: {self._why}")
        else:
            self._end("finished", "")

    # ------------------------------------------------------------ parts

    def failed(self, where: str, error: BaseException) -> None:
        """Report an error of the callback once per location: as a warning, and in the run's log."""
        if where in self._said:
            return
        self._said.add(where)
        text = f"The lab's callback failed in {where}; the training continues. {type(error).__name__}: {error}"
        warnings.warn(text, stacklevel=2)
        if self.run is not None:
            self.run.event(None, text)

    def _named(self, logs: Mapping[str, Any]) -> dict[str, float]:
        """Rename metrics so that each name has the same meaning in every run."""
        renamed: dict[str, str] = {}
        for each in type(self.trainer).__mro__:
            renamed |= RENAMED.get(each.__name__, {})
        if self._rollouts.attached:  # the lab counts completion tokens only, TRL also prompt tokens
            renamed |= {"num_tokens": "num_tokens/with_prompts"}
        return {renamed.get(key, key): float(value) for key, value in logs.items() if isinstance(value, (int, float))}

    def _send(self, state: Any) -> None:
        """Send the pending row, if there is one."""
        if self.run is not None and self._row:
            tokens = self._rollouts.tokens if self._rollouts.attached else None
            counted = {} if tokens is None else {"num_tokens": float(tokens)}
            self.run.log(state.global_step, {**self._row, **counted}, tokens=tokens,
                         seconds=time.monotonic() - self._began)
        self._row, self._held = {}, False

    def _stop_if_asked(self, args: Any, state: Any, control: Any) -> None:
        asked = self.run.asked() if self.run is not None else {}
        why = str(asked.get("why") or "no reason given") if asked.get("stop") else ""
        if args.world_size > 1:  # all processes must leave the loop at the same step
            why = resolve_name("accelerate.utils:broadcast_object_list")([why])[0]
        if why:
            self._why = why
            control.should_training_stop = True

    def _ending(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a method of the trainer so that an exception in it also ends the run."""
        def wrapped(*args: Any, **given: Any) -> Any:
            try:
                return original(*args, **given)
            except KeyboardInterrupt:
                self._end("stopped", "Interrupted from the keyboard.")
                raise
            except BaseException as error:
                self._end("failed", f"{type(error).__name__}: {error}")
                raise
        return wrapped

    def _end(self, state: str, message: str) -> None:
        """End the run and restore the trainer."""
        try:
            self._rollouts.detach()
            self._wrapped.undo()
            if self.run is not None:
                self.run.finish(state, message)
                self.run = None
        except Exception as error:
            self.failed("the end of the run", error)


_NO_TRAINER = "Metrics only: the callback did not find its trainer. Pass it as LabCallback(trainer=trainer)."


def settings(args: Any, trainer: Any) -> dict[str, Any]:
    """Return the current hyperparameters under TRL's names."""
    found = {}
    for name in SETTINGS:
        value = getattr(args, name, None)
        if name in _OWN:
            value = getattr(trainer, _OWN[name], value)
        if value is not None:
            value = getattr(value, "value", value)  # of an enumeration
            found[name] = value if isinstance(value, (bool, int, float, list)) else str(value)
    return found


def described(trainer: Any, model: Any) -> dict[str, Any]:
    """Return the algorithm (the trainer's class), the model and the reward functions."""
    kinds = [each for each in type(trainer).__mro__ if each.__module__.startswith(("trl.", "transformers."))]
    found = {"algorithm": (kinds or [type(trainer)])[0].__name__,
             "model": getattr(getattr(model, "config", None), "_name_or_path", None),
             "reward_functions": [*getattr(trainer, "reward_func_names", [])]}
    return {key: value for key, value in found.items() if value}


def _calling_trainer(callback: LabCallback) -> Any:
    """Return the trainer that calls the callback. Events do not name it, so it is searched in the stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found = frame.f_locals.get("self")
        handler = getattr(found, "callback_handler", None)
        if callback in getattr(handler, "callbacks", ()):
            return found
        frame = frame.f_back
    return None
