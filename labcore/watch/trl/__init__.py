"""Send a run of TRL to the lab while it trains, with one line in its script:

    from labcore.watch.trl import LabCallback

    trainer.add_callback(LabCallback("qwen grpo"))     # or callbacks=[LabCallback()]

The callback supports GRPOTrainer, RLOOTrainer, DPOTrainer, KTOTrainer, SFTTrainer and RewardTrainer of TRL 1.16. From
any other trainer of transformers it sends the metrics.
"""

from labcore.watch.trl.callback import LabCallback

__all__ = ["LabCallback"]
