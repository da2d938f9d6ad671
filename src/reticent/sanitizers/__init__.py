"""Private copies of a column or a table: fit once, and the copy may be published, counted in and sampled from."""
