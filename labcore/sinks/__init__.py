"""Send the metrics of a run live to other tools: TensorBoard, W&B, Trackio."""
