"""The parts of the page Maze."""
