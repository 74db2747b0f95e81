"""The parts of the page CartPole."""
