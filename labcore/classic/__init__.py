"""Classic reinforcement learning: tabular methods in mazes, deep methods in Gymnasium environments."""
