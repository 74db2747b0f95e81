"""The page Runs: the table, what is done with the selected, and the drawer of one run."""
