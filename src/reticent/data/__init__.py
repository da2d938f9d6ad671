"""The readers of what a caller gives: rows, labels, groups and queries. And shards, and who works on them."""
