"""Methods for small worlds: one file each, with the loops that see no disk, no clock and no page."""
