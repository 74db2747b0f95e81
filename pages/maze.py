"""The maze: knobs on the left, the maze with its values and arrows on the right, its curves beside it."""

from app.maze.picture import picture, scene
from app.training.frame import frame

frame("maze", scene, picture)
