"""The surrogate explorer: every surrogate against the ratio, and a policy on which all is exact."""

from app.surrogate.page import page

page()
