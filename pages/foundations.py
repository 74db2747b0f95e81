"""Foundations: what entropy, KL, estimators and policies are, each as a picture that one can grab."""

from app.foundations.page import page

page()
