"""Public domains: the keys that a release is over, as lists, files and ranges, of all key columns or of some. Private."""
