"""How much of one user counts: the bounding functions, and the steps that carry what they promise. Private."""
