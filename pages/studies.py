"""Studies: claims of the literature, tested here."""

from app.studies.page import page

page()
