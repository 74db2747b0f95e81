"""Deep methods for Gymnasium environments with discrete actions: DQN, REINFORCE, A2C, TRPO and PPO."""
