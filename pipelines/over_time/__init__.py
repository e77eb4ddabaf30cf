"""Releases of one kind over time: put side by side, with what changed between them beyond the noise.

All of it is made of released files, and costs nothing. (`reports.series` and `pages.series` are of one release, over a public
column of its own.) Private: import from `headcount`.
"""
