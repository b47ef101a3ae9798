"""Slow, literal versions of what runoff computes: the paper's definitions and pseudocode, and an exhaustive adversary.

Nothing here shares code with the package. A ballot is a tuple of classes, best first.
"""

from functools import cache
from itertools import combinations, combinations_with_replacement, permutations
from math import ceil, inf

# --- the paper, to the letter --------------------------------------------------------------------------------------


def ballots_of(scores):
    """Return each member's strict ranking of the scores of one input; a tie ranks the lower class first."""
    return [tuple(sorted(range(len(member)), key=lambda c: (-float(member[c]), c))) for member in scores]


def votes_of(ballots):
    """Return N^R1 (equation 1)."""
    n_classes = len(ballots[0])
    return [sum(ballot[0] == c for ballot in ballots) for c in range(n_classes)]


def argmax(values, candidates):
    """Return the argmax; a tie goes to the smaller index."""
    return max(candidates, key=lambda c: (values[c], -c))


def plurality(ballots):
    votes = votes_of(ballots)
    winner = argmax(votes, range(len(votes)))
    return winner, argmax(votes, [c for c in range(len(votes)) if c != winner])


def run_off(ballots):
    """Algorithm 1."""
    c1, c2 = plurality(ballots)
    final = {c1: sum(b.index(c1) < b.index(c2) for b in ballots)}
    final[c2] = len(ballots) - final[c1]
    winner = argmax(final, [c1, c2])
    return winner, c2 if winner == c1 else c1


def maximin(ballots):
    """Return the class with the best worst duel."""
    classes = range(len(ballots[0]))
    worst = [min(sum(b.index(a) < b.index(c) for b in ballots) for c in classes if c != a) for a in classes]
    winner = argmax(worst, classes)
    return winner, argmax(worst, [c for c in classes if c != winner])


IN_PAPER = {"plurality": plurality, "runoff": run_off}
RULES = {**IN_PAPER, "maximin": maximin}
BOUNDS = [
    (election, bound) for election in RULES for bound in ("paper", "tight") if bound == "tight" or election in IN_PAPER
]


def gap(first, c, other):
    """Definition 3.1, of a list of first choices."""
    return first.count(c) - first.count(other) + (other > c)


@cache
def dp(i, j):
    """Lemma 3.6."""
    if min(i, j) <= 1:
        return ceil(max(i, j) / 2)
    return 1 + min(dp(i - 1, j - 2), dp(i - 2, j - 1))


def cert_fa(powers, g):
    """Algorithm 4 (CertFA)."""
    powers, count = sorted(powers, reverse=True), 0
    while g > 0:
        if count == len(powers):
            return inf
        g -= powers[count]
        count += 1
    return count


def cert_1v1(first, c, other, spread):
    """Lemma 3.5 (spread None) and Lemma 3.7."""
    if spread is None:
        return ceil(max(0, gap(first, c, other)) / 2)
    powers = [sum(2 * (first[i] == c) + (first[i] not in (c, other)) for i in bucket) for bucket in spread]
    return cert_fa(powers, gap(first, c, other))


def cert_2v1(first, c, c1, c2, spread, clip=False):
    """Lemma 3.6 (spread None) and Lemma 3.8 as its proof has it; `clip=True`: as its statement has it."""
    g1, g2 = gap(first, c, c1), gap(first, c, c2)
    if spread is None:
        return dp(max(0, g1), max(0, g2))
    powers = [sum(3 * (first[i] == c) + (first[i] not in (c, c1, c2)) for i in bucket) for bucket in spread]
    both = max(0, g1) + max(0, g2) if clip else g1 + g2
    return max(cert_1v1(first, c, c1, spread), cert_1v1(first, c, c2, spread), cert_fa(powers, both))


def paper_certificate(election, ballots, spread=None, clip=False):
    """Return the paper's Cert (radius + 1): Theorem 3.4, or for plurality the 1v1 certificate against every class."""
    w, s = RULES[election](ballots)
    first = [b[0] for b in ballots]
    others = [c for c in range(len(ballots[0])) if c != w]
    if election == "plurality":
        return min(cert_1v1(first, w, c, spread) for c in others)
    round1 = min((cert_2v1(first, w, c1, c2, spread, clip) for c1, c2 in combinations(others, 2)), default=inf)
    round2 = inf
    for c in others:
        enters = 0 if c == s else cert_1v1(first, s, c, spread)
        final = [c if b.index(c) < b.index(w) else w for b in ballots]
        round2 = min(round2, max(enters, cert_1v1(final, w, c, spread)))
    return min(round1, round2)


# --- an adversary that tries everything ------------------------------------------------------------------------------


def true_cost(election, ballots, spread=None, sensible=False, to=None):
    """Return the fewest buckets whose members, with any ballots, elect another class, or class `to`; inf if none do.

    `sensible=True` tries only ballots that rank the winner last, one for each first choice. Nothing is lost: votes and
    the winner's place are all that these elections read. It allows for larger cases. With `to`, it tries for plurality
    and run-off only ballots that rank `to` first or second, and for maximin only those that rank it first.
    """
    rule, n_classes = RULES[election], len(ballots[0])
    buckets = [[i] for i in range(len(ballots))] if spread is None else spread
    winner = rule(ballots)[0]
    anything = list(permutations(range(n_classes)))
    if sensible and to is not None:
        if election == "maximin":
            anything = [b for b in anything if b[0] == to]
        else:
            anything = list({b[0]: b for b in anything if to in b[:2]}.values())
    elif sensible:
        anything = list({b[0]: b for b in anything if b[-1] == winner}.values())

    @cache
    def falls(members):
        kept = [b for i, b in enumerate(ballots) if i not in members]
        after = (rule(kept + list(new))[0] for new in combinations_with_replacement(anything, len(members)))
        return any(c != winner if to is None else c == to for c in after)

    for size in range(len(buckets) + 1):
        for chosen in combinations(buckets, size):
            if falls(frozenset(i for bucket in chosen for i in bucket)):
                return size
    return inf
