"""What the comparison with other libraries is made of: a runner for each of them, and the tables of the pages."""
