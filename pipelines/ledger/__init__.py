"""The account of the releases of data sets: a database with limits and entries, and what jobs do with it. Private, no Beam."""
