"""The engine of RL Visual Lab: catalog → runs → loops. It never imports streamlit."""

__version__ = "0.5.0"
