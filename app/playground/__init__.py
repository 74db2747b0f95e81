"""The page Playground: models side by side, and the blind vote."""
