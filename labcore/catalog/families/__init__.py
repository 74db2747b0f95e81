"""The families of choices, a module for each part of a step. Each choice is declared here once, with everything that
belongs to it."""
