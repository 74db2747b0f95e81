"""The families of choices, a module for each part of a step: every choice is declared here once, with everything that
belongs to it."""
