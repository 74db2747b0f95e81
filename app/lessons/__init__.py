"""The page of the lessons."""
