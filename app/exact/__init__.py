"""What the page Exact has of its own."""
