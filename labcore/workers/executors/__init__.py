"""Executors, which start the processes of runs: `local` on this machine, or `ray` on machines of a cluster. `executor`
is the interface."""
