"""Methods that keep a table: dynamic programming, temporal differences and tabular policy gradients."""
