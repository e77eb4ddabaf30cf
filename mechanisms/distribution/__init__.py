"""How likely each public symbol is, from users with many samples each.

Paper: Yuhan Liu, Ananda Theertha Suresh, Felix Yu, Sanjiv Kumar, Michael Riley, "Learning discrete distributions: user vs
item-level privacy", NeurIPS 2020. Private: import `headcount.mechanisms`.
"""
