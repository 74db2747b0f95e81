"""Import metrics of other tools: kinds of files, the table of tools, the runs in a file."""
