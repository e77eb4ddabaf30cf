"""Private choices: the exponential mechanisms, what a choice is, and how one is run. Private."""
