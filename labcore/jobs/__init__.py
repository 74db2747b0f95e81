"""Jobs: short computations that the page wants done and must not do itself. A JSON spec in, a JSON result out."""
