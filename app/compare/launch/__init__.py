"""Starting a comparison or a sweep: the form, its draft, and what will run."""
