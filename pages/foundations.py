"""Foundations: entropy, KL, estimators and policies, each as a picture that the user can drag."""

from app.foundations.page import page

page()
