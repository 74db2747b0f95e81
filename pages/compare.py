"""Compare: runs side by side."""

from app.compare.page import page

page()
