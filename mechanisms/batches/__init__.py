"""How data travels: contributions as Arrow batches, names, shards of users, packed streams, public domains. Private."""
