"""Counts without a bound on a user's items: private count release, top items, and Plume, the baseline.

Paper: Ryan Rogers, "Private Count Release: A Simple and Scalable Approach for Private Data Analytics", 2024. Private: import
`headcount.mechanisms`.
"""
