"""Where runs go: `local`, a process of this machine each, or `ray`, a machine of a cluster; `executor` is the seam."""
