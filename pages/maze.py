"""The maze: knobs on the left, the maze with its values and arrows on the right, its curves beside it."""

from app import maze
from app.frame import frame

frame("maze", maze.scene, maze.picture)
