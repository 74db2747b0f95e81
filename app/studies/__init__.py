"""The page Studies: claims of the literature, tested here, and what came out."""
