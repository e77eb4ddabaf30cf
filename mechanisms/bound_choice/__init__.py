"""How much of a user should count: the bound of a histogram, chosen privately.

Paper: Yuhan Liu, Ananda Theertha Suresh, Wennan Zhu, Peter Kairouz, Marco Gruteser, "Algorithms for bounding contribution for
histogram estimation under user-level privacy", ICML 2023 (Algorithms 2 and 4, Lemma 4.2, Theorem 4.3); the joint choice goes
beyond it. Private: import `headcount.mechanisms`.
"""
