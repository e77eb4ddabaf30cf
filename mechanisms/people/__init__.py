"""Questions about people: each user becomes one small record, by its own rows alone; then cells of a public list are counted.

The bound on a user is known before any data is read. So nothing is chosen, nothing is left out, and no delta is needed but for
Gaussian noise and for names that come from the data.
"""
