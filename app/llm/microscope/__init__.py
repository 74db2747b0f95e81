"""The microscope: a step's groups, pairs or examples, one completion token by token, and the arithmetic of a token."""
