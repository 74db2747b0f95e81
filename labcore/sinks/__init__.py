"""Where the metrics of a run go live beside the store: TensorBoard, W&B, Trackio."""
