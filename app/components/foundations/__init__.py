"""The pictures of the page Foundations: each computes in the browser, so that it follows the hand."""

from app.components.foundations.picture import Picture

ENTROPY = Picture("entropy")
