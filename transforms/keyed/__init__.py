"""Keys at the two ends of a transform: what elements tell of their types, and rows with the key columns. Private."""
