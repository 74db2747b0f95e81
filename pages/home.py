"""Home: where to start."""

from app import home, session

session.problem()
home.top()
home.go_on()
home.cards()
