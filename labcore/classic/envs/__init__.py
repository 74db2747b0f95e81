"""Environments to act in: mazes, Gymnasium environments, and CartPole in torch."""
