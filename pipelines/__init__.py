"""Headcount's driver: the `headcount` command, its sources and sinks, and the report of what was promised."""
