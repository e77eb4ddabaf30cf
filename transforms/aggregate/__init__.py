"""Users, events, sums, means, variances and quantiles by key, wired. Private: import `headcount.transforms`."""
