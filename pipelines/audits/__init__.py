"""Audits of an installation: how much of the stated epsilon is found by running it, on neighbours."""
