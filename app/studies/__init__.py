"""The page Studies: claims of the literature, tested here, with their results."""
