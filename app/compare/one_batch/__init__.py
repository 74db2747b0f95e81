"""Compare's view of one batch: the gradients of several algorithms on the same completions."""
