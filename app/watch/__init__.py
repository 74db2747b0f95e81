"""The page of watched runs, which another trainer runs: the page only shows them."""
