"""Send a run of TRL to the lab while it trains, by one line in its script:

    from labcore.watch_trl import LabCallback

    trainer.add_callback(LabCallback("qwen grpo"))     # or callbacks=[LabCallback()]

It is for the GRPOTrainer, RLOOTrainer, DPOTrainer, KTOTrainer, SFTTrainer and RewardTrainer of TRL 1.16. Any other
trainer of transformers sends its numbers.
"""

from labcore.watch_trl.callback import LabCallback

__all__ = ["LabCallback"]
