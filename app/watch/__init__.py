"""The page of runs that another program trains: nothing is started or steered here."""
