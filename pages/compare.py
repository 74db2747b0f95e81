"""Compare: runs side by side."""

from app import compare

compare.page()
