"""What a run is to do, what its models are called, and what a loop yields. Knows neither store nor disk layout."""
