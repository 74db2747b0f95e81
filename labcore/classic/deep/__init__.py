"""Deep methods for Gymnasium environments: DQN, REINFORCE, A2C, TRPO and PPO."""
