"""Sample and threshold: counts, heavy hitters and quantiles from a secret sample of users, without noise.

Paper: Akash Bharadwaj, Graham Cormode, "Sample-and-threshold differential privacy: Histograms and applications", AISTATS 2022.
Private: import `headcount.mechanisms`.
"""
