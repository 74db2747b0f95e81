"""Sample with vLLM: before each batch it gets the run's weights, and it returns tokens with their log-probs.

vLLM runs in the run's own process and on its GPU: weights are copied inside the GPU's memory, and its scheduler does
the same for the same requests. It is imported when a run samples with it, and not before. Left out: several GPUs,
sleep between batches, and vLLM's own adapters: LoRA is merged into the weights on the way.

The log-probs of both samplers are those of the whole distribution at the run's temperature τ. vLLM has those of the
logits as they are (raw_logprobs, τ = 1) or of what top-k and top-p left (processed_logprobs). So the logits are divided
by τ in the model itself, and vLLM's own temperature stays 1; then raw_logprobs are the right ones.

Source: vLLM 0.32.0, `LLM.collective_rpc("reload_weights")`, `LLM.apply_model`, `ModelConfig.logprobs_mode`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Generator, Tensor, nn
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from labcore.errors import LabError, first_line
from labcore.llm.batch import Completions, Ends, Prompts, all_ends, one_end
from labcore.llm.nets import lora
from labcore.llm.session import LlmSession
from labcore.llm.sizing import passes
from labcore.runs.spec import vllm
from labcore.runs.spec.activity import report

DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
# In this process, so that weights need no way between processes; without statistics that vLLM sends to its makers.
ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
SEEDS = 2**31


@contextmanager
def sampler_of(session: LlmSession) -> Iterator[None]:
    """Let vLLM draw the completions of `session` inside, where its knobs say so. Raises LabError if vLLM is not
    installed, or the run is on no NVIDIA GPU."""
    if not vllm.by_vllm(session.knobs):
        yield
        return
    if why := vllm.fault(session.device.type):
        raise LabError(why)
    session.sampler = sampler = VllmSampler(session.knobs["dtype"])
    try:
        yield
    finally:
        session.sampler = None
        sampler.close()


class VllmSampler:
    """`labcore.llm.sampler.sample` by vLLM, which starts at the first call. `dtype` is the run's knob."""

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self._llm: Any = None
        self._heads: list[tuple[Any, float]] = []  # the layers that scale the logits, and the model's own scale
        self._folder = TemporaryDirectory(prefix="labcore-vllm-")

    @torch.no_grad()
    def __call__(self, model: PreTrainedModel, prompts: Prompts, group_size: int, *, max_new_tokens: int,
                 eos: Ends, generator: Generator, temperature: float = 1.0, top_k: int = 0,
                 top_p: float = 1.0, min_p: float = 0.0, repetition_penalty: float = 1.0,
                 greedy: bool = False) -> Completions:
        """As `labcore.llm.sampler.sample`: equal weights, prompts and generators give equal completions, as far as vLLM
        rounds alike. Raises LabError if vLLM cannot run the model, or has no memory for it."""
        with _in_words():
            if self._llm is None:
                report("starting vLLM")
            llm = self._started(model)
            llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(hub_weights(model).items())})
            llm.reset_prefix_cache()  # it is of the weights before
            for layer, own in self._heads:
                layer.scale = own / temperature
            chance = _chance(greedy, {"top_k": top_k, "top_p": top_p, "min_p": min_p}, len(prompts) * group_size,
                             generator)
            asked = _requests(prompts, group_size, max_tokens=max_new_tokens, stop_token_ids=all_ends(eos),
                              repetition_penalty=repetition_penalty, **chance)
            report("sampling {} of {} completions with vLLM", 0, len(prompts) * group_size)
            answers = llm.generate(*asked, use_tqdm=False)
        return _completions([row for answer in answers for row in answer.outputs], eos, prompts.ids.device)

    def close(self) -> None:
        """Give the GPU's memory back."""
        if self._llm is not None:
            from vllm.distributed import cleanup_dist_env_and_memory

            self._llm.llm_engine.engine_core.shutdown()
            self._llm, self._heads = None, []
            cleanup_dist_env_and_memory()
        self._folder.cleanup()

    def _started(self, model: PreTrainedModel) -> Any:
        if self._llm is None:
            os.environ |= {name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()}
            from vllm import LLM

            model.config.save_pretrained(self._folder.name)
            self._llm = LLM(self._folder.name, load_format="dummy", skip_tokenizer_init=True, dtype=DTYPES[self._dtype],
                            max_model_len=-1, gpu_memory_utilization=passes.VLLM, generation_config="vllm",
                            logprobs_mode="raw_logprobs", seed=0, trust_remote_code=False,
                            hf_overrides={"architectures": [type(model).__name__], "head_dtype": "float32"})
            self._heads = self._llm.apply_model(_heads)[0]
        return self._llm


def hub_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """The weights of `model` as a folder of it holds them: adapters merged, tied ones once, under the hub's names."""
    merged = lora.merged(model) if lora.adapted(model) else model.state_dict()
    once = {name for name, _ in (*model.named_parameters(), *model.named_buffers())}
    once = {name.replace(".base_layer.", ".") for name in once}
    weights: dict[str, Tensor] = revert_weight_conversion(
        model, {name: value for name, value in merged.items() if name in once})
    return weights


def _requests(prompts: Prompts, group_size: int, seed: int | None, **settings: Any) -> tuple[list[Any], list[Any]]:
    """The requests to vLLM: tokens, never text, and how each prompt's group is drawn. The end token is one of its stop
    tokens, since the configuration of a model may name others. Of a group each completion has the next seed."""
    from vllm import SamplingParams, TokensPrompt

    asked = [TokensPrompt(prompt_token_ids=ids[mask].tolist())
             for ids, mask in zip(prompts.ids, prompts.mask, strict=True)]
    return asked, [SamplingParams(n=group_size, seed=None if seed is None else seed + place * group_size, logprobs=0,
                                  ignore_eos=True, detokenize=False, **settings) for place in range(len(prompts))]


def _chance(greedy: bool, kept: dict[str, Any], rows: int, generator: Generator) -> dict[str, Any]:
    """The sampling parameters. `greedy` draws no random number of the run, as in the lab's sampler. Otherwise the run
    draws one number, and the seeds of the rows count up from it."""
    if greedy:
        return {"temperature": 0.0, "seed": None}
    seed = torch.randint(SEEDS - rows, (1,), generator=generator, device=generator.device)
    return {"temperature": 1.0, **kept, "seed": int(seed)}


def _heads(network: nn.Module) -> list[tuple[Any, float]]:
    """The layers of vLLM's model that make its logits, with their scale. Raises LabError where there is none."""
    from vllm.model_executor.layers.logits_processor import LogitsProcessor

    if found := [(layer, layer.scale) for layer in network.modules() if isinstance(layer, LogitsProcessor)]:
        return found
    raise LabError(f"vLLM's {type(network).__name__} does not scale its logits, so it cannot sample at a temperature: "
                   "set rollouts to engine.")


def _completions(rows: list[Any], eos: Ends, device: torch.device) -> Completions:
    """vLLM's answers as tensors, padded with the end token."""
    lengths = torch.tensor([len(row.token_ids) for row in rows], device=device)
    width, fill = int(lengths.max()), one_end(eos)
    ids = torch.tensor([[*row.token_ids, *[fill] * (width - len(row.token_ids))] for row in rows], device=device)
    logprobs = torch.tensor([[step[token].logprob for token, step in zip(row.token_ids, row.logprobs, strict=True)]
                             + [0.0] * (width - len(row.token_ids)) for row in rows], device=device)
    truncated = torch.tensor([row.token_ids[-1] not in all_ends(eos) for row in rows], device=device)
    return Completions(ids, torch.arange(width, device=device) < lengths[:, None], truncated, logprobs)


@contextmanager
def _in_words() -> Iterator[None]:
    """The LabError for a request that vLLM refused, for which vLLM has many types of errors."""
    try:
        yield
    except (LabError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise LabError(f"vLLM cannot sample from this model ({first_line(error)[:300].rstrip('.:')}): set rollouts to "
                       "engine.") from error
