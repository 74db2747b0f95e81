"""The engine of RL Visual Lab: catalog → runs → loops. It never imports streamlit."""
