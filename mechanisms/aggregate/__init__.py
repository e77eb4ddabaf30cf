"""Users, events, and sums, means, variances and quantiles of values, by key: all metrics in one release, with one budget.

    1. names      keys are named by rounds of selection (`partitions`), or are a public domain, for which nothing is spent
    2. bounds     how many rows c of a user on one key count, and how many keys m and rows r on each the sums see, is chosen
                  privately, or given
       ranges     of values are chosen privately, where they are not given (`ranges`)
    3. sums       of each user's rows on *named* keys a uniform sample stays: m keys, and r rows on each. Their values, cut to
                  a public range, are whole numbers. Every named key gets a few noisy sums (`measures`), and for quantiles a
                  tree of noisy counts (`trees`): all metrics follow, means by those of all keys (`pooled`)
    4. totals     noisy totals of groups of keys tell how much the bounds have left out of users, and of events of which c of
                  one user on one key count (`totals`)

Guarantee: user-level (epsilon, delta)-differential privacy under the relation, add-remove or replace; or delta-approximate
rho-zCDP. Proof: docs/proofs/aggregate.md, "All stages together".

Values are whole numbers as soon as they are read, in units of a 2^20th of half the range. What lies beyond counts as the end of
it.

No paper: these are the metrics that PipelineDP, Privacy on Beam, Tumult and OpenDP give, on the stages of the histogram. What
differs from them: no epsilon is split by metric, bounds are chosen, and totals are calibrated. Private: import
`headcount.mechanisms`.
"""
