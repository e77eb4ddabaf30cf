"""How much noise a promise needs for what one user may add, and how far that takes a count from the truth. Private."""
