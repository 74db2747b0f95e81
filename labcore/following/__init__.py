"""Follow the files that other trainers write, and send what is in them to the lab as watched runs."""
