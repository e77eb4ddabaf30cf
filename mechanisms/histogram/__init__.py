"""Counts by item: a histogram whose bound is given or chosen, over items from the data or a public domain, and debiased totals.

Paper: Yuhan Liu, Ananda Theertha Suresh, Wennan Zhu, Peter Kairouz, Marco Gruteser, "Algorithms for bounding contribution for
histogram estimation under user-level privacy", ICML 2023 (Algorithms 1, 3 and 5). Private: import `headcount.mechanisms`.
"""
