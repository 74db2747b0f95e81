"""What the page CartPole has of its own."""
