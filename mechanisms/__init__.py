"""Headcount's mechanisms: the privacy mathematics as pure functions on NumPy and Arrow, without Beam.

`headcount.mechanisms.histogram.fixed` has whole histograms; `contributions.contribution_batch` makes their input.
"""
