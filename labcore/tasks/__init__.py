"""Text tasks: what the model is asked, and who says whether the answer is right."""
