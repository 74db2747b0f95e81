"""The views: Streamlit only. Nothing here imports torch; runs are read from the store."""
