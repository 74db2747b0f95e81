"""What the lab uses of vLLM 0.32.0, on Hugging Face's networks: where vLLM is not, tests put it in vLLM's place.

Names and meanings are vLLM's: dummy weights until some are loaded, a prefix cache that is stale until it is reset,
seeds that count up in a group, stop tokens that stay in the answer, raw log-probs of the scaled logits before
temperature and top-k. `tests/cuda/test_vllm.py` holds the arguments to vLLM's own signatures, and the lab's sampler to
vLLM itself.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from labcore.llm.sampler import draw, keep_top, penalised
from labcore.runs.spec import vllm


@dataclass
class SamplingParams:
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    max_tokens: int = 16
    logprobs: int | None = None
    ignore_eos: bool = False
    detokenize: bool = True
    stop_token_ids: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.temperature == 0 and self.n != 1:
            raise ValueError(f"n must be 1 when using greedy sampling, got {self.n}.")


class LogitsProcessor(nn.Module):
    scale = 1.0

    def forward(self, logits: Tensor) -> Tensor:
        return logits * self.scale


class LLM:
    """`made` are all that were started; `rounding` is how far the logits are off those of the network."""

    made: list[LLM] = []  # noqa: RUF012 (a test puts a new one there)
    rounding = 0.0
    refuses = ""

    def __init__(self, model: str, *, load_format: str, skip_tokenizer_init: bool, dtype: str, max_model_len: int,
                 gpu_memory_utilization: float, generation_config: str, logprobs_mode: str, seed: int,
                 trust_remote_code: bool, hf_overrides: dict[str, Any]) -> None:
        if self.refuses:
            raise ValueError(self.refuses)
        assert load_format == "dummy" and skip_tokenizer_init and not trust_remote_code
        assert generation_config == "vllm" and logprobs_mode == "raw_logprobs"
        assert 0 < gpu_memory_utilization < 1 and max_model_len == -1
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model)).eval()
        assert hf_overrides["architectures"] == [type(self.network).__name__]
        self.network.to(getattr(torch, dtype)).head = LogitsProcessor()
        self.llm_engine = SimpleNamespace(engine_core=SimpleNamespace(shutdown=self._shut))
        self.prefixes: dict[tuple[int, ...], Tensor] = {}
        self.asked: list[SamplingParams] = []
        self.open = True
        LLM.made.append(self)

    def _shut(self) -> None:
        self.open = False

    def collective_rpc(self, method: str, kwargs: dict[str, Any]) -> list[None]:
        assert method == "reload_weights"
        found = self.network.load_state_dict(dict(kwargs["weights_iterator"]), strict=False)
        assert not found.unexpected_keys and {*found.missing_keys} <= {*self.network.all_tied_weights_keys}
        return [None]

    def apply_model(self, func):
        return [func(self.network)]

    def reset_prefix_cache(self) -> bool:
        self.prefixes.clear()
        return True

    @torch.no_grad()
    def generate(self, prompts, sampling_params, *, use_tqdm: bool):
        assert self.open and not use_tqdm and len(prompts) == len(sampling_params)
        self.asked += sampling_params
        return [SimpleNamespace(outputs=[self._one(prompt["prompt_token_ids"], params, index)
                                         for index in range(params.n)])
                for prompt, params in zip(prompts, sampling_params, strict=True)]

    def _one(self, prompt: list[int], params: SamplingParams, index: int) -> SimpleNamespace:
        assert params.logprobs == 0 and params.ignore_eos and not params.detokenize
        generator = None if params.seed is None else torch.Generator().manual_seed(params.seed + index)
        token_ids, logprobs = [], []
        while len(token_ids) < params.max_tokens and not (token_ids and token_ids[-1] in params.stop_token_ids):
            logits = self._logits([*prompt, *token_ids])
            raw, seen = logits.log_softmax(-1), torch.zeros_like(logits, dtype=torch.bool)
            seen[0, [*prompt, *token_ids]] = True
            scores = penalised(logits, seen, params.repetition_penalty)
            if params.temperature == 0:
                token = int(scores.argmax())
            else:
                token = int(draw(keep_top((scores / params.temperature).log_softmax(-1), params.top_k, params.top_p,
                                          params.min_p), generator))
            token_ids.append(token)
            logprobs.append({token: SimpleNamespace(logprob=float(raw[0, token]))})
        return SimpleNamespace(token_ids=tuple(token_ids), logprobs=logprobs)

    def _logits(self, ids: list[int]) -> Tensor:
        if tuple(ids) not in self.prefixes:
            logits = self.network(input_ids=torch.tensor([ids])).logits[:, -1].float()
            off = torch.randn(logits.shape, generator=torch.Generator().manual_seed(len(ids)))
            self.prefixes[tuple(ids)] = logits + self.rounding * off
        return self.network.head(self.prefixes[tuple(ids)])


def TokensPrompt(*, prompt_token_ids: list[int]) -> dict[str, list[int]]:
    return {"prompt_token_ids": prompt_token_ids}


def put_in_place(monkeypatch) -> type[LLM]:
    """Let `import vllm` find this, and the cpu be a device for it."""
    parts = {"vllm": {"LLM": LLM, "SamplingParams": SamplingParams, "TokensPrompt": TokensPrompt},
             "vllm.distributed": {"cleanup_dist_env_and_memory": lambda: None}, "vllm.model_executor": {},
             "vllm.model_executor.layers": {},
             "vllm.model_executor.layers.logits_processor": {"LogitsProcessor": LogitsProcessor}}
    for name, content in parts.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(vllm, "DEVICES", ("cuda", "cpu"))
    monkeypatch.setattr(LLM, "made", [])
    return LLM
