"""Counts at every level of a key, such as country, region and city, in one release whose rows agree. Private."""
