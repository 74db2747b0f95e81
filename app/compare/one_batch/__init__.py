"""Compare's view of one batch: the gradients of all algorithms on the same completions."""
