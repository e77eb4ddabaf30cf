"""Every number of `mechanisms/` that was tuned: each is no part of any proof.

The rule: changing a number here changes accuracy or time, and the rows that a release draws, but never a guarantee. Whoever
adds noise computes it from these numbers, and states what that costs. So any value in the range that a comment allows keeps the
promise, and most comments allow every positive one. No number here is ever fitted to a check: they were chosen on data of many
kinds, once, and `python benchmarks/tuning.py` shows what each trades.

What a proof rests on stands beside that proof: limits of types, grids of integers, slacks of rounding, and how finely an upper
bound is computed. Numbers that a caller gives, such as epsilon, have their defaults where they are asked for.

Modules write `tuning.NAME` where they use a number. Some are read when a module is imported, since menus and defaults of
classes are made of them: whoever tries another value sets it before importing anything else.
"""

from __future__ import annotations

import math
from fractions import Fraction

# Shares of the promise
# ----------------------
# How a budget is divided between the steps of a release. Any share above 0 and below 1 is private. A larger one makes its own
# step better, and leaves less for the others.

#: Of epsilon, for a bound that is chosen for the least error, or for the most items (`choice.run`); for the bound of one total,
#: which has no other error, so that it is worth more (`histogram.total`); and for the number of samples of each user
#: (`distribution.learn`). Of rho, for the two bounds of `count_release.papers.plume`.
CHOICE_SHARE_FOR_ERROR, CHOICE_SHARE_FOR_ITEMS = Fraction(1, 10), Fraction(1, 20)
CHOICE_SHARE_FOR_TOTAL, CHOICE_SHARE_FOR_SAMPLES, CHOICE_SHARE_FOR_PLUME = Fraction(1, 5), Fraction(1, 20), 0.1

#: Of epsilon, for the limit on items per user, the first of two draws that decide how items are named (`partitions.auto`,
#: `histogram.account`). More finds the limit with fewer users.
NAMES_LIMIT_SHARE = Fraction(3, 200)

#: Of epsilon, for the second of these draws: where names are all that is released, and where they are a part of a histogram.
#: A wrong choice may leave nothing to count, which is why the second is larger. And for all of naming, in `people.release`.
NAMES_CHOICE_SHARE, NAMES_CHOICE_SHARE_OF_HISTOGRAM, NAMES_SHARE_OF_PEOPLE = Fraction(1, 20), 0.07, 0.25

#: Of epsilon, for the counts' bound, for that of the totals, and for how many events of a user on one item count
#: (`histogram.account`). A totals' bound that is too small makes all estimates too low.
COUNTS_CHOICE_SHARE, TOTALS_CHOICE_SHARE, CAP_CHOICE_SHARE = 0.05, 0.07, 0.03

#: Of epsilon, for whether counts stand alone, and at which norm (`histogram.account`); what noise counts there by users above
#: the norm (`alone_choice`): more leaves out more, and keeps totals more often; and the most keys for it.
ALONE_SHARE, ALONE_NOISE_PRICE, ALONE_KEYS = 0.15, 2, 100

#: Of epsilon, for the range of one column of values; of each of k columns it is this by the root of k (`histogram.account`).
RANGE_CHOICE_SHARE = 0.1

#: Where rho-zCDP is promised, a share s of epsilon is s times this times the root of rho: 8 s^2 of rho (`histogram.account`).
ZCDP_CHOICE_UNIT = 8.0

#: Of the precision 1 / sigma^2, for names, counts and totals: of a histogram, and of an aggregate, where a mean needs more than
#: a count. Three shares that add up to 1 (`histogram.account`, `aggregate.release`).
HISTOGRAM_PRECISION, AGGREGATE_PRECISION = (0.75, 0.2, 0.05), (0.55, 0.4, 0.05)

#: The share of totals beside counts: of the epsilon of a Laplace plan, of a histogram and of an aggregate, and of the precision
#: of a Gaussian plan for public items (`histogram.account`). And of leaves beside the levels above them (`levels.tree`).
LAPLACE_TOTALS_SHARE, LAPLACE_TOTALS_SHARE_OF_AGGREGATE, PUBLIC_TOTALS_SHARE, LEAVES_SHARE = 0.07, 0.15, 0.2, 0.8

#: The most of the precision of counts and totals that totals get, once it is known how many items are counted
#: (`clip_choice`).
MOST_TOTALS_SHARE = 0.7

#: Of delta, for hiding items of one user alone: by thresholds beside Gaussian noise, beside Laplace noise, and by selection
#: curves (`histogram.account`). More lowers the threshold, less lowers the noise.
THRESHOLD_DELTA, LAPLACE_THRESHOLD_DELTA, SELECTION_DELTA = 0.1, 0.6, 0.3

#: Of delta, what the Gaussian noise of a histogram in one stage costs alone; below `thresholds.TOTAL_SHARE`. More makes noise
#: smaller and the threshold higher (`calibration.noise`, `partitions.rounds`).
GAUSSIAN_NOISE_DELTA = 0.99

#: Of delta, what the noise of all rounds of sips costs; the rest is for their thresholds (`partitions.rounds`). And what names
#: cost where a budget in epsilon is converted to zCDP; the rest is for the conversion (`accounting.budget`).
SIPS_NOISE_DELTA, NAMES_DELTA = 0.5, 0.5

#: Of the delta of selection in rounds, for items of one user alone; it costs a curve less there than elsewhere. And that delta
#: by the one of a single round: more is better for rounds and worse for one. Their product is below 1 (see `curve_budget`).
OWN_ITEMS_DELTA, ROUNDS_DELTA = 1 / 3, 23 / 20

#: Of a selection, for all rounds before the last, which take away what is named easily: where names are all that is released,
#: and for sips and names that are a part of a release. These could be one number (`partitions.curve_budget`,
#: `partitions.rounds`).
EARLY_ROUNDS_SHARE, EARLY_ROUNDS_SHARE_OF_PART = 1 / 20, 1 / 10

#: Of the rho that a budget is worth, for the draws of the top among named items (`count_release.top_names`).
TOP_DRAWS_SHARE = 0.5

#: Of epsilon, for the number of users: of events and samples, where with many users its noise hardly matters, and of a
#: distribution. These could be one number (`histogram`, `sampled`, `shape`; `distribution.plan`).
USERS_SHARE, USERS_SHARE_OF_DISTRIBUTION = 0.1, Fraction(1, 20)

#: Of epsilon, for how much users differ, and of the rest for the vector of the method "sparse" (`distribution.plan`).
SPREAD_SHARE, SPARSE_VECTOR_SHARE = Fraction(1, 20), Fraction(7, 10)

#: Of epsilon, for the noise in the sum of the shuffle model. The rest is for a flood of messages, which costs no accuracy: more
#: gives closer counts and more messages (`shape.papers.shuffled`).
SHUFFLED_NOISE_SHARE = Fraction(9, 20)

#: Of a ledger's delta, what thresholds of adaptive releases may fail to hide (`accounting.totals`). Of a promise for many runs,
#: the share of delta that releases get, and how many of these make noise Gaussian unless it is given (`accounting.promise`).
FILTER_HIDING_DELTA, PROMISE_DELTA, PROMISE_GAUSSIAN = 3 / 5, 1 / 2, 8

# What a choice takes for the price of what it leaves out
# -------------------------------------------------------
# A private choice compares the noise of a bound with what the bound leaves out. Sensitivities are computed from these prices.

#: What an event costs that the bound leaves out, by that of an error of one, where estimates are scaled up. More keeps more
#: events, with more noise (`clip_choice`, `aggregate.choice`).
LEFT_OUT_PRICE = Fraction(1, 2)

#: The most that one user is worth to a bound for Gaussian noise, in bounds (`clip_choice`, `aggregate.choice`). More
#: tells users of many items from others, and makes the draw noisier.
MOST_WORTH = 8

#: What an item is worth that is named and counted at once, by one event of each user. Such counts tell little where users have
#: more events; less takes other names more often (`histogram.stages`).
ONE_EVENT_WORTH = Fraction(7, 8)

#: How many times its mean noise a count must be for its item to be worth something to the bound (`bound_choice.joint`). More
#: takes bounds with less noise, and fewer items. A whole number.
LEAST_COUNT_BY_NOISE = 2

#: More of one user's events on one item count if one more in a hundred of the pairs of a user and an item has them: for each
#: step of the menu (`clip_choice`). Less counts more events of few users; a tenth at most for ten steps.
ABOVE_CAP = 0.01

#: What the noise of a total counts beside that of all counts, which it multiplies (`clip_choice`): more gives totals more
#: precision. 0.3 and 1 do about as well.
TOTALS_NOISE_PRICE = 0.3

#: What noise counts for a mean, a variance or a quantile by that for a total: a bound takes rows from these, and no part of the
#: number itself (`aggregate.stages`, averaged over the metrics). What the variance of noise counts in a mean by that of a value
#: (`aggregate.choice`). More keeps fewer rows. And what Gaussian noise counts by Laplace's, as waves make means closer.
RATIO_NOISE_PRICE, NOISE_BY_CHANCE, NOISE_WITH_WAVES = 2, 12, 0.75

#: The power by which larger bounds are drawn less often, where nobody is above them: of one total and of items per user, and of
#: the norm of totals. More cuts a few users with most events. These could be one number (`bound_choice.one_total`,
#: `partitions.limited`, `clip_choice`).
LARGE_BOUND_PENALTY, LARGE_NORM_PENALTY = 3, 2.5

#: Up to this by epsilon, limits on items per user are alike (`partitions.limited`): more names more for few of many items.
LIMITS_ALIKE = 100

#: The power by which selections of more items are drawn more often (`partitions.limited`): scores for few items do not see what
#: users have beyond them.
MANY_ITEMS_REWARD = 3 / 4

#: Where an item begins to be worth something to a way of naming, and where it is worth no more, in eighths of its median; and
#: what of the rest comes back in rounds, in eighths: 8 at most. By noise, and by selection curves (`partitions.candidates`).
NOISE_WORTH, SELECTION_WORTH = (2, 16, 2), (4, 14, 3)

#: How many users the best bound on distinct items leaves above it, times the epsilon of the choice (`shape.distinct`). More
#: leaves out more users, and takes a bound that was large by chance less often.
USERS_ABOVE_BOUND = 4

#: A draw is shared by all items of a public domain if it makes the noise of each smaller by this part: for less, errors that
#: are correlated are a poor trade (`calibration.noise`).
LEAST_GAIN_OF_SHARED_NOISE = 0.01

#: Selection curves are taken in place of names by noise if they get this part of the divergence (`histogram.account`).
LEAST_PART_OF_SELECTION = 0.5

#: How often a private choice may miss what its theorem promises, of which the margin of its scores follows. Less is more
#: careful against bounds that are far too large, and chooses small ones more often. These could be one number: the default
#: (`choice.exponential`, `distribution.binomial_choice`), bounds of estimates (`clip_choice`), items of a sample
#: (`sampled.items_choice`), and which of two methods chooses the norm of a public domain (`choice.norm_bins`).
MISSED, MISSED_BY_COUNTS, MISSED_BY_SAMPLE, MISSED_BY_NORM = 0.05, 0.005, 0.002, 1e-6

#: How often noise exceeds the width of mode "l2" of a shape, which then is less close (`shape.anonymized`, `shape.hashed`).
MISSED_BY_SHAPE = 0.01

# Menus of candidates
# -------------------
# What a private choice looks at: any tuple of whole numbers that rise. More candidates, or larger ones, find a better bound
# where there is much data, and make the draw noisier and slower.

#: Items of each user that name items (`partitions.auto`, `histogram.stages`); those between, in one round; and all of them
#: where names are all that is released. The first two are keys of SELECTION_MEDIANS.
ITEMS_OF_SELECTION, ITEMS_BETWEEN = (3, 10, 30, 100, 300, 1000, 3000, 10_000), (6, 17, 55, 170)
ITEMS_OF_SELECTION_ALONE = tuple(sorted((*ITEMS_OF_SELECTION, *ITEMS_BETWEEN, 550)))

#: Items of each user in sums of values (`aggregate.stages`), in a sample (`sampled.items_choice`), and in a number of distinct
#: items (`shape.distinct`). With those above, these could be one menu.
ITEMS_OF_AGGREGATE = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
ITEMS_OF_SAMPLE = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300)
ITEMS_OF_DISTINCT = tuple(2**k for k in range(21))

#: Events of each user in one stage, six in every factor of ten (`bound_choice.joint`, `papers.volume`), and norms of
#: users in estimates (`histogram.stages`). These could be one menu.
BOUNDS_OF_ONE_STAGE = tuple(sorted({round(10 ** (step / 6)) for step in range(25)}))
BOUNDS_OF_ESTIMATES = tuple(2**power for power in range(14))

#: Events of one user on one item that count (`bound_choice.joint`, and the `stages` of histogram, levels and aggregate). What
#: is counted hangs on it: few of them, so that two releases of one log choose the same.
CAPS = (1, 3, 10, 30, 100, 300, 1000)

#: Events of each user in totals of groups, ten in every factor of ten (`histogram.stages`, `aggregate.stages`).
NORMS_OF_TOTALS = tuple(sorted({round(10 ** (step / 10)) for step in range(71)}))

#: Norms of users of a public domain, forty in every factor of ten (`choice.norm_bins`), and events of each user in one total,
#: up to the most that a user counts for (`bound_choice.one_total`). These could be one menu.
NORMS_OF_PUBLIC_DOMAIN = tuple(sorted({round(10 ** (step / 40)) for step in range(241)}))
BOUNDS_OF_TOTAL = tuple(sorted({round(10 ** (step / 40)) for step in range(361)}))

#: Upper ends of a range of values: 1, 2, 5, 10 and so on (`aggregate.ranges`). Four at least.
RANGE_ENDS = tuple(Fraction(digit) * Fraction(10) ** power for power in range(-9, 12) for digit in (1, 2, 5))
RANGE_ENDS += (Fraction(10) ** 12,)

#: Rounds of selection: the default, and where names are a part of a histogram, where two name 95 to 99 % of what three name, in
#: a pass less over the data (`partitions`, `histogram.stages`). These could be one number.
ROUNDS, ROUNDS_OF_HISTOGRAM = 3, 2

#: The most states of a candidate's selection curve (`partitions.auto`): more finds better ones. 2^15 take a second.
MOST_STATES_OF_CANDIDATE = 1 << 15

#: The most items whose counts are looked at, unless told otherwise (`count_release`): more finds rarer ones, and takes longer.
#: And up to which k the top k is drawn item by item; from there on items are named first (`count_release.top_names`).
ITEMS_LOOKED_AT, MOST_DRAWN = 10_000, 9

#: The paper's first epsilon, whose threshold of some 60,000 users is above most counts: more begins too low (`count_release`).
FIRST_EPSILON = 5e-4

#: Standard deviations of noise in a count's relative error at the threshold, the paper's: more has closer counts, and fewer.
DEVIATIONS_OF_TARGET = Fraction(3, 2)

#: Draws that may find nothing, beyond one for each item: each doubles the cost of the next (`count_release.release`).
SPARE_ROUNDS = 100

#: Measurements that are united as noise is reduced: 1/64, 1/64, 1/32 and so on of the precision, which add up to 1. More of
#: them stop closer to the target, and take longer (`count_release.release`).
MEASUREMENT_PARTS = (64, 64, 32, 16, 8, 4, 2)

#: How far candidates for a probability are apart, in total variation: in scales of the choice, or in standard deviations of a
#: sample, whichever is larger, and at most (`distribution.binomial_choice`). Less is closer to the truth, and slower.
COVER_BY_PRIVACY, COVER_BY_SAMPLING, WIDEST_COVER = 0.5, 0.25, 0.25

#: The most candidates for a probability, by method (`distribution.binomial_choice`): more is closer to the truth, and slower.
MOST_PROBABILITIES = {"ks": 1 << 16, "phs": 1 << 12}

#: Steps of the noisy gradient descent, how far the first goes, as a part of the menu, and how the others shrink
#: (`bound_choice.papers.baselines`). More steps come closer, each with more noise.
DESCENT_STEPS, DESCENT_STRIDE, DESCENT_DECAY = 16, 0.25, -0.75

#: Parameters of the flood of the shuffle model: the one with the fewest messages is taken (`shape.papers.shuffled`).
FLOODS = tuple(Fraction(q) for q in ("4/5", "17/20", "9/10", "93/100", "19/20", "97/100", "49/50", "99/100", "199/200"))

#: Buckets for each item of each user (`shape.hashed`): more keeps items apart, fewer have less noise. At least 2. And the most
#: positions of a shape that mode "auto" sorts, which is closer: a few seconds' work (`shape.auto`).
BUCKETS_PER_USER, MOST_SORTED = 4, 10**7

#: The search for a sample's threshold ends where it is this much worse than the best one found, and looks at loss distributions
#: in this many steps of an epsilon (`sampled.plan`). More is slower.
WORSE_THRESHOLD, SEARCH_STEPS = 1.25, 64

#: Children of a node of the tree for quantiles, a power of two, and its levels (`aggregate.trees`). More levels tell values
#: apart more finely, and each then has more noise; so does a wider node with more parts of a rank.
TREE_BRANCHING, TREE_LEVELS = 8, 5

#: Groups of symbols by which users may differ (`distribution.spread`). More follows how they differ, with more noise.
SPREAD_GROUPS = 8

# What data is taken to be like before any is seen
# ------------------------------------------------
# Where these are wrong, another way would have been better.

#: Items of a typical user, for whom the one selection curve is made that others are derived from (`partitions.auto`). A key of
#: the table below.
TYPICAL_ITEMS = 30

#: Half-way points of the selection curves by items of each user, relative to the curve for 30 items; those of fine curves at
#: epsilon 0.3 to 4, within a few hundredths. To make all curves for them would take a second at every start
#: (`partitions.auto`).
SELECTION_MEDIANS = {1: 0.65, 3: 0.77, 6: 0.836, 10: 0.877, 17: 0.942, 30: 1.0, 55: 1.067, 100: 1.153, 170: 1.235}
SELECTION_MEDIANS |= {300: 1.347, 1000: 1.585, 3000: 1.88, 10_000: 2.4}

#: The same of selection in rounds, relative to one round (`partitions.auto`).
SELECTION_MEDIAN_IN_ROUNDS = 1.04

#: The order a of a selection is where its divergence by a to this power is largest (`curve_budget`). More gives curves
#: that begin to rise earlier, less ones that end earlier. Medians are within half a percent of the best order's.
ORDER_POWER = 1.9

#: Users, where their number is not public: for comparing methods (`distribution.plan`), and for output perturbation
#: (`bound_choice`, where a caller may give another). These could be one number.
TYPICAL_USERS, GUESSED_USERS = 10_000, 100_000

#: Items that a user's weight may stand for at a public domain: a part of the domain, as in the paper, and this many at least
#: (`bound_choice.by_name.methods`, where a caller may give another). More scores users of many items better, and noisier.
SPARSITY, LEAST_SPARSITY = 10, 10

#: How many users show an item of a sample more often than not, by items of each user: a power of their number, from a number on
#: that grows with delta and epsilon, and with replaced users (`sampled.items_choice`). Fitted to exact ones, within a tenth.
SAMPLE_USERS_POWER, SAMPLE_USERS_BY_DELTA, SAMPLE_USERS_BY_EPSILON, SAMPLE_USERS_REPLACED = 0.42, 0.26, 0.6, 1.6

#: What the error of a mean and of a variance depends on, by rows and by their own sums, over all that values may be; and what
#: that of a number of users or events does (`aggregate.measures`). More gives the sums of that metric more precision.
MEAN_WEIGHT, VARIANCE_WEIGHT, COUNT_WEIGHT = (1 / 3, 1.0), (1.0, 2.0), 1 / 2

#: The same of a quantile: its rank has the noise of its share of the rows, and on each level that of some parts.
QUANTILE_WEIGHT = (1 / 3 / 3**2, TREE_LEVELS**2 * TREE_BRANCHING / 6 / 3**2)

#: The variance of a key's mean that may be anywhere in its range (`aggregate.pooled`). More pulls keys less towards each other.
KEY_VARIANCE = 1 / 3

#: Items, by the variance of noise, that are taken for one count more or less as counts are sorted (`shape.anonymized`).
SORTED_MISPLACED = 2

#: What "dense" and "sparse" miss of what their estimates lack to one, in sum, where users differ: 0.2 to 1.4 as measured. More
#: makes their stated error larger (`distribution.learn`).
MISSED_OF_REST = 1.25

#: Up to this by m, probabilities are estimated by how many users have a symbol at all, and from the second by m on another
#: method is taken (`distribution.small`).
LARGEST_SMALL, LEAST_LARGE = 4, 2

# Looks of a result
# -----------------
# What is made of numbers that are already noisy. The estimators of entropy and coverage may also be of the data: their noise is
# computed from the largest step that these numbers give them.

#: A group's counts add up to this many times the noise of its total, and of the counts themselves (`histogram.groups`). More
#: makes fewer groups, whose scales are sharper and fit fewer items.
GROUP_BY_TOTAL_NOISE, GROUP_BY_OWN_NOISE = 16.0, 8.0

#: Neighbouring groups are joined if their scales differ by fewer standard deviations than this; and the most groups
#: (`histogram.groups`).
GROUPS_ALIKE, MOST_GROUPS = 3.0, 64

#: How far items of a size differ in what the bound left out of them, as a part of their count: the standard deviation where
#: this share of the events or more is left out, and in proportion below that; twice that where one event of each user is
#: counted, as the root of a user's items becomes their number (`histogram.groups`). What real data showed; more makes intervals
#: wider. How many second looks this is worth, which may tell of more; and the noise of all totals together, as a part of them,
#: from which on it is not told what was left out.
SPREAD_OF_LEFT_OUT, LEFT_OUT_OF_FULL_SPREAD, SPREAD_OF_ONE_EVENT = 0.15, 0.3, 2
LOOKS_OF_SPREAD, LEFT_OUT_UNKNOWN = 4, 0.1

#: The distribution of counts behind the noisy ones (`histogram.deconvolution`): how finely it is told, in standard deviations
#: of the noise, up to how many of them, and the steps of its computation. Finer and farther is slower; more steps follow single
#: items.
SHRINKAGE_STEP, FARTHEST_SHRUNK, SHRINKAGE_ROUNDS = 0.25, 60.0, 150

#: How often noise is taken for missing values (`aggregate.answers`): less misses more of them. And the scale of gaps by that of
#: halves, as a power of 2 (`aggregate.measures`): more leaves more to means, and knows less of how far values spread. 0 to 10.
TAKEN_FOR_MISSING, GAP_STEPS = 0.001, 4

#: Means of keys are pulled together: so often their spread is estimated anew, then the means; and what keeps a polynomial from
#: bending where there is nothing to bend to (`aggregate.pooled`). Chosen on generated data.
POOLING_ROUNDS, POOLING_STEPS, POOLING_STIFFNESS = 6, 3, 1e-6

#: In standard deviations: nodes of fewer rows are not looked into, what hardly any rows are, and how far a rank is from the one
#: asked for that may be it as well (`aggregate.quantiles`). More stops higher in the tree.
ROWS_TO_LOOK_INTO, HARDLY_ROWS, RANK_AS_WELL = math.sqrt(TREE_BRANCHING), 3.0, 1.0

#: How far the most likely shape may be from the nearest one, in mean errors of that (`shape.anonymized`): 1.1 at most on all
#: data that was tried.
FARTHEST_LIKELY_SHAPE = 2.0

#: The most likely shape: it is looked at first after some steps, then after this many times more, and is done where that gains
#: less than this times p^3 (1 - p)^2, or after the most steps (`shape.likelihood`). More steps follow noise, fewer are coarse.
LIKELY_FIRST_CHECK, LIKELY_GROWTH, LIKELY_LEAST_GAIN, LIKELY_MOST_STEPS = 6, 1.3, 7.3, 500

#: Values for each scale of the noise that the most likely shape tells apart (`shape.likelihood`), and steps of an estimator
#: that are looked at for the error of one row of a shape (`shape.properties`). More is slower.
LIKELY_RESOLUTION, STEPS_OF_ROW = 50, 16

#: Counts beyond this stay as they are in the inversion of hashing, whose time grows with the square (`shape.hashed`).
FARTHEST_INVERTED = 1 << 14

#: The column `error` of a shape: how often it is tried out, once where there are more distinct counts or items than the next
#: two, and beyond the last without hashing (`shape.rehearsal`). More is steadier, and slower.
REHEARSALS, MANY_COUNTS, MANY_ITEMS, MOST_REHEARSED = 4, 1 << 12, 1 << 16, 1 << 24

#: The polynomial for entropy, by the logarithm of the samples: its degree, the interval that it is fitted on, and the largest
#: count that it is used for (`shape.estimators`). More has less bias, and more noise.
ENTROPY_DEGREE, ENTROPY_INTERVAL, ENTROPY_CUT = 1.0, 1.5, 0.8

#: The smoothing of a coverage at up to twice the samples (`shape.estimators`): more has less bias, and more noise.
COVERAGE_SMOOTHING = 10

# How a selection curve is made
# -----------------------------
# Every curve is checked when it is made, and refused if it does not keep what is stated of it (`partitions.selection_curve`).

#: The weight of a user, in units: at most, and halved while a curve has more states than the second; from the third on it is
#: refused. More names a little more, and takes longer.
CURVE_UNITS, CURVE_STATES, CURVE_MOST_STATES = 4, 1 << 12, 1 << 20

#: The logit up to which a curve rises, and how far apart the points are between which it is interpolated. A higher end and a
#: finer step name a little more, and take longer.
CURVE_TOP, CURVE_STEP = 20.0, 0.2

#: What is stated of lower orders follows the curve of this many items: curves of fewer are held back (`partitions.coins`). More
#: states less for what is composed with names, and holds back more curves.
FREE_ITEMS = 10

#: What is stated beyond what that curve has, and beyond where a curve is held back; and at how many orders it is. More is
#: refused less often, and costs accuracy (`partitions.coins`).
STATED_BEYOND, HELD_BACK_BY, HELD_BACK_ORDERS = 1.03, 1.02, 12
