"""The networks: built, loaded and computed."""
