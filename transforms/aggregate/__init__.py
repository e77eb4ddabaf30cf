"""Users, events, sums, means and variances by key, wired. Private: import `headcount.transforms`."""
