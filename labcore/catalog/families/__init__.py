"""The families of choices, a module for each part of a step: each choice is declared once, with all that it needs."""
