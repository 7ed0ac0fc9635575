"""The thresholds of the verdict, each with the reason for its value."""

from __future__ import annotations

CLEAR = 0.85
"""Share of the declared speed from which a reading exonerates: TCP payload on Ethernet is 0.94; the rest is noise."""
LOW = 0.80
"""Share below which a reading speaks against a pair; between LOW and CLEAR it says nothing."""
NAME_BELOW = 0.77
"""Retests must be LOW one by one, and their median below this, before anybody is named."""
RETESTS = 3
"""Valid LOW retests before a name is given."""
LINK_RETESTS = 4
"""The same for a link: there are many of them, and noise on either end slows one down."""
RETESTS_AT_MOST = 5
"""Valid retests that still disagree after so many are INCONCLUSIVE."""
ALIKE = 1.3
"""LOW retests within this factor of the best are alike: a lasting fault reads the same each time, noise does not."""
ALIKE_AT_MOST = 8
"""So many valid retests may be spent to find enough that are alike."""
GOOD_RETESTS = 2
"""Good retests that clear a suspect: a lasting fault cannot give two."""
VOIDS_AT_MOST = 8
"""Voided retests (the control pair was low too) after which the fleet is too noisy to judge; pauses grow meanwhile."""
SPACING_S = 3.0
"""Pause before a retest: about two rounds at 1 Gb/s, the mean length of a noise episode in simulation."""
SPACING_AT_MOST_S = 12.0
"""Every second retest of a suspect waits longer, up to here, so as to outlast a long episode."""
CLUSTER_SHARE = 0.80
"""More than this share of nodes never clear: the cluster is the suspect, not its nodes."""
FLEET_ROUNDS = 3
"""Further spaced rounds over all nodes before a cluster is named."""
FLEET_ROUNDS_AT_MOST = 9
"""So many rounds may be spent until the fleet's median is steady: an episode passes, a lasting cause stays."""
FLEET_EQUAL = 1.5
"""Capacities of a cluster-wide fault lie within this factor, else it is several faults."""
STEADY = 1.15
"""Largest q90/q50 of the fleet's round medians in which a lasting cause is believed."""
BUSY_IDLE_SHARE = 0.10
"""Below this idle share of the processors the host is busy, and a slow reading proves nothing."""
LEAF_GOOD = 0.40
"""Below this share of good pairs across, a node speaks against its leaf; up to it of low ones a leaf round is good."""
LEAF_NODES_LOW = 0.60
"""More than this share of a leaf's nodes must be low across before the leaf is suspected instead of them."""
LEAF_LOW = 0.80
"""Share of low readings that makes a whole-leaf round speak against the leaf."""
LEAF_ROUNDS = 2
"""Spaced whole-leaf rounds that name or clear a leaf."""
LEAF_REPEATS = 4
"""Rounds across that are repeated before most leaves, or the way between two, are suspected."""
LEAF_LINKS = 4
"""From so many slow links of one leaf to others, of more than half of its nodes, they are the leaf's, not their own."""
VOID_SHARE = 0.30
"""A plan round with a share of low readings this far above the median round (and above this share) is void."""
FAN_IN_VOTES = 2
"""Lead in concordant fan-in measurements that decides between the node and its links."""
FAN_IN_AT_MOST = 6
FAN_IN_COMPARABLE = 0.35
"""The weaker partner must bring this share of the stronger one, or two flows say no more than one."""
FAN_IN_ALIKE = 0.65
"""Partners this much alike are preferred: the more alike, the further apart are one flow and the sum of two."""

COLLECTIVE_SLACK = 1.15
"""All-reduce time ÷ the time that the slowest pair's bandwidth allows (2(n−1)/n · S ÷ bandwidth)."""
COLLECTIVE_MIN_BYTES = 8_000_000
"""Smaller messages are about latency; their bandwidth is shown, not judged."""
SCALING_SLACK = 1.15
"""Step time ÷ (computation + communication), and communication ÷ what the collective stage measured."""

COMPUTE_SHARE = 0.85
"""Solo throughput ÷ median of the peers' below which a node is a straggler."""
CPU_SHARE = 0.90
"""Own processor share ÷ median of the peers' below which the processor was withheld from the rank."""
LOSS_FALL = 0.90
"""Mean loss of the last quarter of steps ÷ of the first quarter, at most."""
LOSS_TOLERANCE = 1e-3
"""Relative difference to the single-process losses, same seed and data: sums in another order give 1e-6–1e-4."""

LATENCY_FACTOR = 5.0
LATENCY_FLOOR_US = 5_000.0
"""p50 limit: this factor over the better pairs, but never under this floor (lab with busy processors: up to 3.6 ms)."""
TAIL_FACTOR = 10.0
TAIL_FLOOR_US = 50_000.0
"""p99 limit: a lost segment costs TCP at least 200 ms, half of it in half a round trip; a busy lab cost up to 35 ms."""
STALL = 0.10
"""A repetition this far below the cell's median stalled for a second or more; a busy lab gave 0.3 at times."""
TAIL_SHARE = 0.25
"""Share of cells with a bad tail from which a node or link loses packets."""
TAIL_CELLS = 3
"""Cells with a bad tail that are needed to name anybody."""
TAIL_ELSEWHERE = 0.05
"""Share of bad tails among the pairs not concerned, at most: else the host is noisy."""
TAIL_ROUNDS = 6
"""Retest rounds spent on a bad tail."""

MAJORITY = 0.50
"""The same cause on more than this share of at least three nodes is not the nodes' own."""
MAJORITY_NODES = 3

HISTORY_RUNS = 5
"""Earlier runs from which this cluster's own history is a limit: fewer say nothing of their spread."""
HISTORY_FALL = 0.07
"""A fall of less than this share of the earlier median is no change, however alike those runs were."""
HISTORY_FEW = 2.0
"""The spread of n runs counts 1 + this/n times, since few runs lie closer together than many will."""
HISTORY_ROWS_UP_TO = 64
"""In larger fleets only falls have a row."""
