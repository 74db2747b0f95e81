"""A small lesson to be changed by tests: a maze of twelve cells, two runs of four episodes."""

TEXT = '''+++
title = "Both learn"
claim = "SARSA earns as much as Q-learning."
source = "None: a test"
minutes = 1
seeds = [0, 1, 2]
check = 'last(q, "start_value/best") == last(sarsa, "start_value/best")'

[question]
text = "Which is better?"
choices = ["Q-learning", "None of them"]
right = 2

[[runs]]
name = "q"
label = "Q-learning"
kind = "maze"
algorithm = "q_learning"
task = "textbook"
steps = 4

[[runs]]
name = "sarsa"
label = "SARSA"
kind = "maze"
algorithm = "sarsa"
task = "textbook"
steps = 4
knobs = { alpha = 0.4 }

[short]
steps = 2
+++
The best possible value is a matter of the maze.
'''
