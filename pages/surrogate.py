"""The surrogate explorer: every surrogate against the ratio, and a policy with exact values."""

from app.surrogate.page import page

page()
