"""Text tasks: prompts, answers, verifiers, rewards of the user, and data files."""
