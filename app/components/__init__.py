"""What Streamlit has no widget for: our own components, each a folder with its scripts and style."""
