"""What the page Maze has of its own."""
