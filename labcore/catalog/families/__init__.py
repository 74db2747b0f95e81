"""The families of choices, a module for each part of a step: every choice is declared here once, with all that is its
own."""
