"""Mixes: choices of the user's own. What row they make, which named row is nearest, and what to beware of."""
