"""Help: questions and answers, and the reference."""

from app.help import page

page()
