"""Check a proof.json of `runoff certify --export`: every prediction, and every certified radius.

    python -m runoff.check proof.json      or, as a copied file:      python check.py proof.json

This file needs only Python's standard library, and shares no code with the rest of runoff. It exits with code 0 if
everything is proven, 3 if a certificate is wrong or cannot be proven, 4 if the file is malformed. docs/verify.md
describes the format of proof.json, and docs/proofs.md the proofs behind the code.

A radius r claims that an adversary who picks any r buckets, and any ballots for the members that these buckets reach,
cannot change the prediction. Ties between classes always go to the lower class index.

Notation of the paper: N[c] first choices for class c; gap(a, b) = N[a] - N[b] + [b > a], so a beats b in round 1 when
gap(a, b) > 0; w the prediction, s the runner-up, k the number of members. Run-off: the two classes with the most first
choices advance, and the one that more members rank above the other wins. Maximin: M[a, b] members rank class a above b;
m[a], the smallest M[a, b] over all b, is the worst duel of a; the class with the largest m wins.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import hashlib
import json
import os
import stat
import sys
import zlib
from array import array
from collections.abc import Iterator, Sequence
from itertools import combinations, islice
from operator import gt
from typing import Any, NamedTuple

FORMAT, VERSION = "runoff proof", 1
ELECTIONS, BOUNDS = ("plurality", "runoff", "maximin"), ("tight", "paper")  # maximin is not in the paper: tight only
UNITS = {  # what a radius counts, and what it covers
    "samples": "samples that are inserted, deleted or relabelled",
    "sources": "sources, whatever they contribute",
    "labels": "changed labels; inserted and deleted samples are not covered",
}
MOST_FILE, MOST_BALLOTS, MOST_MEMBERS = 2**29, 2**31, 10**6  # bytes, bytes, members and buckets
SEARCH = 20_000  # nodes to exclude an attack
ATTACKS = 3  # threats that are searched for an attack on radius + 1 buckets
SHOWN = 5  # failures that are listed

Row = Sequence[int]  # a ballot: points for each class, n_classes - 1 for the first choice down to 0 for the last


class MalformedError(ValueError):
    """A file that is not a proof; the message says why."""


# --- elections -------------------------------------------------------------------------------------------------------


def top_two(votes: Sequence[int]) -> tuple[int, int]:
    """Return the classes with the most and the second most votes."""
    first = votes.index(max(votes))
    second = max((c for c in range(len(votes)) if c != first), key=lambda c: (votes[c], -c))
    return first, second


def hold(election: str, ballots: Sequence[Row]) -> tuple[int, int]:
    """Hold an election: return the winner and the runner-up (for a run-off, the other finalist)."""
    n_classes = len(ballots[0])
    if election == "maximin":
        return top_two([min(duels[:c] + duels[c + 1 :]) for c, duels in enumerate(duels_of(ballots))])
    votes = [0] * n_classes
    for row in ballots:
        votes[row.index(n_classes - 1)] += 1
    a, b = top_two(votes)
    if election == "plurality":
        return a, b
    for_a = sum([row[a] > row[b] for row in ballots])
    a_wins = 2 * for_a > len(ballots) or (2 * for_a == len(ballots) and a < b)
    return (a, b) if a_wins else (b, a)


def duels_of(ballots: Sequence[Row]) -> list[list[int]]:
    """Return M, the number of members that rank class a above class b, for all a and b."""
    columns = list(zip(*ballots, strict=True))
    duels = [[0] * len(columns) for _ in columns]
    for a, b in combinations(range(len(columns)), 2):
        duels[a][b] = sum(map(gt, columns[a], columns[b]))
        duels[b][a] = len(ballots) - duels[a][b]
    return duels


class Attack(NamedTuple):
    """An attack: the members that it takes over, and the class that each of them ranks first. All rank w last."""

    members: Sequence[int]
    firsts: Sequence[int]


class Input:
    """The ballots of one input, with their counts."""

    def __init__(self, election: str, ballots: Sequence[Row]) -> None:
        self.election, self.ballots = election, ballots
        self.k, self.n_classes = len(ballots), len(ballots[0])
        top = self.n_classes - 1
        self.first = [row.index(top) for row in ballots]
        self.voters: dict[int, list[int]] = {}
        for member, c in enumerate(self.first):
            self.voters.setdefault(c, []).append(member)
        self.votes = [len(self.voters.get(c, ())) for c in range(self.n_classes)]
        self.w, self.s = hold(election, ballots)
        self.rivals = [c for c in range(self.n_classes) if c != self.w]
        self._ranking: dict[tuple[int, int], list[int]] = {}

    def gap(self, a: int, b: int) -> int:
        """Return N[a] - N[b] + [b > a] (Definition 3.1)."""
        return self.votes[a] - self.votes[b] + (b > a)

    def ranking(self, a: int, b: int) -> list[int]:
        """Return the members that rank class a above class b."""
        if (a, b) not in self._ranking:
            self._ranking[a, b] = [j for j, row in enumerate(self.ballots) if row[a] > row[b]]
        return self._ranking[a, b]

    def final_gap(self, c: int) -> int:
        """Return the gap of w over c in round 2; c wins there when it is 0 or less."""
        return 2 * len(self.ranking(self.w, c)) - self.k + (c > self.w)

    def flips(self, attack: Attack) -> bool:
        """Replay an attack: hold the election again with the changed ballots."""
        ballots = list(self.ballots)
        for member, first in zip(attack.members, attack.firsts, strict=True):
            others = (c for c in range(self.n_classes) if c not in (first, self.w))
            points = [0] * self.n_classes
            for place, c in enumerate((first, *others, self.w)):
                points[c] = self.n_classes - 1 - place
            ballots[member] = points
        return hold(self.election, ballots)[0] != self.w


# --- one bucket per member: an attack of a given size, or a proof that no such attack exists --------------------------
#
# Each function below takes the members that are most useful for one threat: exchanging a taken member for another never
# helps. So if they do not suffice, no other members of that number do. An additional member never hurts, since it may
# keep its ballot: if no attack with r members exists, none with fewer does, and one with r + 1 members makes r exact.


def overtaken(case: Input, c: int, size: int) -> Attack | None:
    """Return a plurality attack by which c beats w: voters of w count twice, those of others once, of c not at all."""
    w = case.w
    others = [j for u, voters in case.voters.items() if u not in (w, c) for j in voters]
    taken = (case.voters.get(w, []) + others)[:size]
    votes_w = case.votes[w] - min(size, case.votes[w])
    votes_c = case.votes[c] + len(taken)
    return Attack(taken, [c] * len(taken)) if votes_c > votes_w or (votes_c == votes_w and c < w) else None


def eliminated(case: Input, size: int) -> Attack | None:
    """Return a run-off attack by which two classes beat w in round 1, so that w does not advance.

    The two with the smallest gaps need the fewest votes. Each taken member gives one vote. Voters of w come first,
    since they also lower what both classes need; then voters of a third class, and those that the two can spare.
    """
    w, votes = case.w, case.votes
    if len(case.rivals) < 2:
        return None
    pair = sorted(case.rivals, key=lambda c: (case.gap(w, c), c))[:2]
    others = [j for u, voters in case.voters.items() if u not in (w, *pair) for j in voters]
    taken = (case.voters.get(w, []) + others)[:size]
    votes_w = votes[w] - min(size, votes[w])
    goals = [votes_w + (c > w) for c in pair]  # the votes that beat w: one more if w has the lower index
    for c, goal in zip(pair, goals, strict=True):
        taken += case.voters.get(c, [])[: min(size - len(taken), max(0, votes[c] - goal))]
    needs = [max(0, goal - votes[c]) for c, goal in zip(pair, goals, strict=True)]
    if sum(needs) > len(taken):
        return None
    return Attack(taken, [pair[0]] * needs[0] + [pair[1]] * (len(taken) - needs[0]))


def beaten(case: Input, c: int, size: int) -> Attack | None:
    """Return a run-off attack by which class c beats every class but w in round 1, and w in round 2.

    The best ballot for this ranks c first and w last, and no voter of c needs to be taken. Then c has N[c] + size
    votes, so every other class u must lose all voters above that number; those that rank w above c are taken first,
    since they also count in round 2. The remaining members of `size` are taken from others that rank w above c.
    """
    w, votes = case.w, case.votes
    size = min(size, case.k - votes[c])
    total = votes[c] + size
    must = {u: votes[u] - total + (u < c) for u in case.voters if u not in (c, w)}
    must = {u: count for u, count in must.items() if count > 0}
    if sum(must.values()) > size:
        return None
    supporters = case.ranking(w, c)
    useful, taken = set(supporters), []
    for u, count in must.items():
        taken += sorted(case.voters[u], key=lambda j: j not in useful)[:count]
    rest = useful.difference(taken)
    taken += sorted(rest)[: size - len(taken)]
    against = len(supporters) - len(useful.intersection(taken))
    c_wins = 2 * against < case.k or (2 * against == case.k and c < w)
    if not c_wins:
        return None
    if len(taken) < size:  # round 1 was counted with `size` members
        chosen = set(taken)
        taken += [j for j in range(case.k) if j not in chosen and case.first[j] != c][: size - len(taken)]
    return Attack(taken, [c] * len(taken))


def attack_alone(case: Input, size: int) -> Attack | None:
    """Return an attack that takes over `size` members, or None if no such attack exists."""
    if case.election == "plurality":
        attacks: Iterator[Attack | None] = (overtaken(case, c, size) for c in case.rivals)
    else:
        attacks = (beaten(case, c, size) if c is not None else eliminated(case, size) for c in (None, *case.rivals))
    return next((attack for attack in attacks if attack is not None), None)


def exact_alone(case: Input) -> int:
    """Return the exact radius."""
    low, high = 0, case.k  # `low` members cannot change the prediction, `high` can
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if attack_alone(case, middle) else (middle, high)
    return low


def paper_alone(case: Input) -> int:
    """Return the radius of Theorem 3.4 with Lemmas 3.5 and 3.6, which may be below the exact one."""

    def half(gap: int) -> int:
        return (max(0, gap) + 1) // 2

    w, s = case.w, case.s
    gaps = sorted(max(0, case.gap(w, c)) for c in case.rivals)
    if case.election == "plurality":
        return half(gaps[0]) - 1
    costs = [max(half(case.gap(s, c)) if c != s else 0, half(case.final_gap(c))) for c in case.rivals]
    if len(gaps) > 1:  # the table dp[g1, g2] of Lemma 3.6 in closed form
        costs.append(max(half(gaps[1]), (gaps[0] + gaps[1] + 2) // 3))
    return min(costs) - 1


# --- a spread: inequalities that every attack must satisfy ------------------------------------------------------------


class Spread:
    """The members that each bucket reaches."""

    def __init__(self, buckets: Sequence[Sequence[int]], n_members: int) -> None:
        self.buckets = buckets
        self.of_member: list[list[int]] = [[] for _ in range(n_members)]
        for b, members in enumerate(buckets):
            for j in members:
                self.of_member[j].append(b)
        self.reached = [j for j, reaching in enumerate(self.of_member) if reaching]

    def is_one_to_one(self) -> bool:
        """Return whether buckets and members correspond one to one."""
        return len(self.buckets) == len(self.of_member) == len({b[0] for b in self.buckets if len(b) == 1})


class Need(NamedTuple):
    """A condition of a threat: the powers of the taken members must sum to at least the gap.

    A member's power is the most that taking it over can lower the gap: `base`, plus `by_vote` of its first choice, plus
    `by_pair` of each pair of classes of which it ranks the first above the second.
    """

    gap: int
    base: int
    by_vote: dict[int, int]
    by_pair: dict[tuple[int, int], int] = {}  # noqa: RUF012 - never changed


def added(needs: Sequence[Need]) -> Need:
    """Return the sum of needs, which must also be met, and which accounts for needs that compete for members."""
    by_vote: dict[int, int] = {}
    by_pair: dict[tuple[int, int], int] = {}
    for need in needs:
        for c, each in need.by_vote.items():
            by_vote[c] = by_vote.get(c, 0) + each
        for pair, each in need.by_pair.items():
            by_pair[pair] = by_pair.get(pair, 0) + each
    return Need(sum(n.gap for n in needs), sum(n.base for n in needs), by_vote, by_pair)


class Threat(NamedTuple):
    """A way to change the prediction: the same members must meet all needs. `to` are the classes that gain."""

    to: tuple[int, ...]
    needs: list[Need]


def passing(case: Input, u: int, c: int) -> Need:
    """Return the need of class c to overtake u (Lemma 3.7): voters of u count twice, of c not, of others once."""
    return Need(case.gap(u, c), 1, {u: 1, c: -1})


class Counts:
    """The powers of the buckets of a spread for one input."""

    def __init__(self, case: Input, spread: Spread) -> None:
        self.case, self.spread = case, spread
        self.sizes = [len(members) for members in spread.buckets]
        self._votes: dict[int, list[int]] = {}
        self._pairs: dict[tuple[int, int], list[int]] = {}
        self._powers: dict[Any, list[int]] = {}
        self._sums: dict[Any, int] = {}

    def _tally(self, members: Sequence[int]) -> list[int]:
        counts = [0] * len(self.sizes)
        for j in members:
            for b in self.spread.of_member[j]:
                counts[b] += 1
        return counts

    def powers(self, need: Need) -> list[int]:
        """Return the power of each bucket, the sum of those of its members."""
        by_vote = tuple(sorted((c, each) for c, each in need.by_vote.items() if each and self.case.votes[c]))
        key = (need.base, by_vote, tuple(sorted(need.by_pair.items())))
        if key not in self._powers:
            powers = [need.base * size for size in self.sizes]
            for c, each in by_vote:
                if c not in self._votes:
                    self._votes[c] = self._tally(self.case.voters[c])
                powers = [power + each * count for power, count in zip(powers, self._votes[c], strict=True)]
            for pair, each in need.by_pair.items():
                if pair not in self._pairs:
                    self._pairs[pair] = self._tally(self.case.ranking(*pair))
                powers = [power + each * count for power, count in zip(powers, self._pairs[pair], strict=True)]
            self._powers[key] = powers
        return self._powers[key]

    def _most(self, need: Need, size: int) -> int:
        """Return the sum of the `size` largest powers."""
        key = (need.base, tuple(need.by_vote.items()), tuple(need.by_pair.items()), size)
        if key not in self._sums:
            self._sums[key] = sum(sorted(self.powers(need), reverse=True)[:size])
        return self._sums[key]

    def excludes(self, need: Need, size: int) -> bool:
        """Return whether no `size` buckets meet a need: the largest powers sum to less than the gap (Algorithm 4)."""
        if need.gap <= 0:
            return False
        # Without negative terms, powers are at least as large and equal for many needs, so that the sums are reused.
        larger = {c: each for c, each in need.by_vote.items() if each > 0}
        return self._most(need._replace(by_vote=larger), size) < need.gap or self._most(need, size) < need.gap

    def member_powers(self, need: Need) -> list[int]:
        """Return the power of each member."""
        powers = [need.base + need.by_vote.get(c, 0) for c in self.case.first]
        for pair, each in need.by_pair.items():
            for j in self.case.ranking(*pair):
                powers[j] += each
        return powers


def threats(case: Input, counts: Counts, size: int, paper: bool) -> Iterator[Threat]:
    """Yield the threats that no single need excludes for `size` buckets.

    With `paper`, `beaten` threats have only the needs that Theorem 3.4 uses: passing the runner-up, and round 2.
    """
    w, s = case.w, case.s
    if case.election == "maximin":
        yield from outduelled(case, counts, size)
        return
    passes = {c: passing(case, w, c) for c in case.rivals}
    possible = [c for c in case.rivals if not counts.excludes(passes[c], size)]
    if case.election == "plurality":
        yield from (Threat((c,), [passes[c]]) for c in possible)
        return
    # Eliminated: c1 and c2 both beat w in round 1 (Lemma 3.8). The gaps are added unclipped: setting negative ones to 0
    # first, as in the statement of the lemma, is unsound (docs/proofs.md).
    for c1, c2 in combinations(possible, 2):
        both = Need(passes[c1].gap + passes[c2].gap, 1, {w: 2, c1: -1, c2: -1})
        if not counts.excludes(both, size):
            yield Threat((c1, c2), [passes[c1], passes[c2], both])
    # Beaten: c beats every class but w in round 1, and w in round 2.
    for c in case.rivals:
        ahead = [u for u in case.voters if u not in (c, w) and (u == s or not paper)]
        needs = [need for need in (passing(case, u, c) for u in ahead) if need.gap > 0]
        if any(counts.excludes(need, size) for need in needs):
            continue
        final = Need(case.final_gap(c), 0, {}, {(w, c): 2})
        if final.gap > 0:
            needs.append(final)
        if counts.excludes(final, size):
            continue
        if len(needs) > 1 and not paper:
            both = added(needs)
            if counts.excludes(both, size):
                continue
            needs.append(both)
        yield Threat((c,), needs)


def outduelled(case: Input, counts: Counts, size: int) -> Iterator[Threat]:
    """Yield the maximin threats that no single need excludes for `size` buckets.

    Class c overtakes w when m[c] >= m[w] + [c > w]: when M[c, a] >= M[w, b] + [c > w] for some class b, with which w
    then has its worst duel, and for every class a. A taken member lowers M[w, b] - M[c, a] by at most 2: by 1 if it
    ranked w above b, and by 1 if it ranked a above c. It does so for all a and b at once by ranking c first and w last.
    """
    w, most = case.w, 2 * size * max(counts.sizes)
    duels = duels_of(case.ballots)
    for c in sorted(case.rivals, key=lambda c: c != case.s):
        others = sorted((a for a in range(case.n_classes) if a != c), key=lambda a: duels[c][a])
        for b in sorted(case.rivals, key=lambda b: duels[w][b]):
            if duels[w][b] - duels[c][others[0]] + (c > w) > most:
                break  # the other b have larger gaps
            gaps = {a: duels[w][b] - duels[c][a] + (c > w) for a in others}
            duel = Need(0, 0, {}, {(w, b): 1})
            needs = [added([duel, Need(gap, 0, {}, {(a, c): 1})]) for a, gap in gaps.items() if gap > 0]
            needs += [added(needs)] if len(needs) > 1 else []
            if not any(counts.excludes(need, size) for need in needs):
                yield Threat((c,), needs)


def search(counts: Counts, needs: list[Need], size: int, limit: int) -> list[int] | bool | None:
    """Search for `size` buckets that meet all needs, each member counted once.

    Return the buckets, None if none exist, or False if undecided after `limit` nodes. Each node takes or omits one
    bucket, and is pruned only if the largest remaining powers cannot meet some need.
    """
    buckets, of_member = counts.spread.buckets, counts.spread.of_member
    by_member = [counts.member_powers(need) for need in needs]
    totals = [sum([power[j] for j in counts.spread.reached]) for power in by_member]
    if any(total < need.gap for need, total in zip(needs, totals, strict=True)):
        return None  # all buckets together do not suffice
    by_bucket = [list(counts.powers(need)) for need in needs]
    stack: list[tuple[list[list[int]], list[int], frozenset[int], list[int], int]]
    stack = [(by_bucket, [need.gap for need in needs], frozenset(), [], size)]
    nodes = 0
    while stack:
        left, gaps, covered, chosen, more = stack.pop()
        nodes += 1
        if nodes > limit:
            return False
        if all(gap <= 0 for gap in gaps):
            return chosen
        slack = []
        for power, gap in zip(left, gaps, strict=True):
            slack.append(sum(sorted(power, reverse=True)[:more]) - gap if gap > 0 else sys.maxsize)
            if slack[-1] < 0:
                break
        if min(slack) < 0 or not more:
            continue
        worth = [sum(powers) for powers in zip(*(p for p, gap in zip(left, gaps, strict=True) if gap > 0), strict=True)]
        pick = worth.index(max(worth))
        without = [list(power) for power in left]
        for power in without:
            power[pick] = 0
        stack.append((without, gaps, covered, chosen, more))
        fresh = [j for j in buckets[pick] if j not in covered]
        gains = [sum([power[j] for j in fresh]) for power in by_member]
        for after, power in zip(left, by_member, strict=True):
            for j in fresh:
                for b in of_member[j] if power[j] else ():
                    after[b] = max(0, after[b] - power[j])  # buckets left out stay at 0
            after[pick] = 0
        gaps = [gap - gain for gap, gain in zip(gaps, gains, strict=True)]
        stack.append((left, gaps, covered.union(fresh), [*chosen, pick], more - 1))
    return None


def least_radius(case: Input, counts: Counts) -> int:
    """Return a simple lower bound on the radius of maximin: a bucket of L members lowers m[w] - m[c] by at most 2 L."""
    worst = [min(duels[:c] + duels[c + 1 :]) for c, duels in enumerate(duels_of(case.ballots))]
    gaps = [worst[case.w] - worst[c] + (c > case.w) for c in case.rivals]
    return (min(gaps) - 1) // (2 * max(1, *counts.sizes))


def attack_with(case: Input, threat: Threat, members: Sequence[int]) -> Attack:
    """Return the best attack of these members for a threat."""
    if len(threat.to) == 1:
        return Attack(members, [threat.to[0]] * len(members))
    first, second = threat.to
    taken = set(members)
    votes_first, votes_w = (sum(case.first[j] == c and j not in taken for j in range(case.k)) for c in (first, case.w))
    enough = max(0, votes_w + (first > case.w) - votes_first)
    return Attack(members, [first if i < enough else second for i in range(len(members))])


# --- one input -------------------------------------------------------------------------------------------------------


class Claim(NamedTuple):
    """The claims about one input."""

    prediction: int
    runner_up: int
    radius: int


class Verdict(NamedTuple):
    """The result of a check: what is wrong, if anything, and whether an attack of radius + 1 was replayed."""

    wrong: str | None = None
    exact: bool = False
    unproven: bool = False  # the search gave up without finding anything wrong


def check_input(
    election: str, bound: str, ballots: Sequence[Row], claim: Claim, spread: Spread | None, nodes: int = SEARCH
) -> Verdict:
    """Check the prediction, runner-up and radius of an input; `spread` is None for one bucket per member."""
    if election == "maximin" and bound == "paper":
        return Verdict("maximin is not in the paper and has no such bound, claimed paper")
    case = Input(election, ballots)
    for what, elected, claimed in (("prediction", case.w, claim[0]), ("runner-up", case.s, claim[1])):
        if elected != claimed:
            return Verdict(f"the {what} is class {elected}, claimed {claimed}")
    most = case.k if spread is None else len(spread.buckets)
    if claim.radius > most:
        return Verdict(f"a radius is at most {most}, the number of buckets, claimed {claim.radius}")
    if election == "maximin":
        return _check_spread(case, bound, claim.radius, spread or Spread([[j] for j in range(case.k)], case.k), nodes)
    if spread is None or spread.is_one_to_one():
        return _check_alone(case, bound, claim.radius)
    return _check_spread(case, bound, claim.radius, spread, nodes)


def _check_alone(case: Input, bound: str, radius: int) -> Verdict:
    if radius and (attack := attack_alone(case, radius)) is not None:
        if not case.flips(attack):  # construction and election disagree, so nothing is proven
            return Verdict(f"the claimed radius {radius} could not be proven", unproven=True)
        true_radius = exact_alone(case) if bound == "tight" else paper_alone(case)
        members = ", ".join(map(str, sorted(attack.members)[:8])) + (", ..." if len(attack.members) > 8 else "")
        return Verdict(f"the radius is {true_radius}, claimed {radius}: members {members} change the prediction")
    if bound == "paper" and (true_radius := paper_alone(case)) != radius:
        return Verdict(f"the radius of Theorem 3.4 is {true_radius}, claimed {radius}")
    attack = attack_alone(case, radius + 1) if radius < case.k else None
    exact = attack is not None and len(attack.members) <= radius + 1 and case.flips(attack)
    if bound == "tight" and not exact:
        return Verdict(f"the radius is {exact_alone(case)}, claimed {radius}")
    return Verdict(exact=exact)


def _check_spread(case: Input, bound: str, radius: int, spread: Spread, nodes: int) -> Verdict:
    counts = Counts(case, spread)
    paper = bound == "paper"
    open_threats = list(threats(case, counts, radius, paper)) if radius else []
    if open_threats and paper:
        return Verdict(f"the radius of Theorem 3.4 is below the claimed {radius}: {_describe(case, open_threats[0])}")
    for threat in open_threats:
        buckets = search(counts, threat.needs, radius, nodes)
        if buckets is False:
            return Verdict(f"the claimed radius {radius} could not be proven: {_describe(case, threat)}", unproven=True)
        if buckets is not None:
            names = ", ".join(map(str, sorted(buckets)[:8]))  # type: ignore[arg-type]
            return Verdict(f"the radius is below the claimed {radius}: {_describe(case, threat)} with buckets {names}")
    if radius >= len(spread.buckets):
        return Verdict()
    if case.election == "maximin":
        if (least := least_radius(case, counts)) > radius:
            return Verdict(f"the radius is at least {least}, claimed {radius}")
    elif next(threats(case, counts, radius + 1, True), None) is None:
        return Verdict(f"the radius of Theorem 3.4 is above the claimed {radius}")
    return Verdict(exact=_is_exact(case, counts, radius))


def _is_exact(case: Input, counts: Counts, radius: int) -> bool:
    """Return whether an attack on radius + 1 buckets was found that changes the prediction when replayed."""
    for threat in islice(threats(case, counts, radius + 1, False), ATTACKS):
        buckets = search(counts, threat.needs, radius + 1, radius + 10)
        if isinstance(buckets, list):
            members = sorted({j for b in buckets for j in counts.spread.buckets[b]})
            if case.flips(attack_with(case, threat, members)):
                return True
    return False


def _describe(case: Input, threat: Threat) -> str:
    if len(threat.to) == 2:
        return f"classes {threat.to[0]} and {threat.to[1]} may eliminate class {case.w} in round 1"
    return f"class {threat.to[0]} may beat class {case.w}"


# --- the file --------------------------------------------------------------------------------------------------------


class Proof(NamedTuple):
    """The content of a well-formed proof.json."""

    election: str
    bound: str
    n_members: int
    n_classes: int
    spread: Spread | None
    ballots: bytes | array[int]
    claims: list[Claim]
    unit: str = "samples"

    def rows(self, i: int) -> list[Row]:
        """Return the ballots of input i, each checked to be a ranking."""
        width, k = self.n_classes, self.n_members
        block = self.ballots[i * k * width : (i + 1) * k * width]
        rows: list[Row] = [block[at : at + width] for at in range(0, k * width, width)]
        if any(sorted(row) != list(range(width)) for row in {bytes(row): row for row in rows}.values()):
            raise MalformedError(f"input {i} has a ballot that does not rank classes 0 to {width - 1}, each once")
        return rows


def read(path: str | os.PathLike[str]) -> Proof:
    """Read a proof.json without trusting it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError as error:
        raise MalformedError(f"it cannot be read: {error.strerror}") from None
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_FILE:
        os.close(descriptor)
        raise MalformedError(f"it must be a regular file of at most {MOST_FILE:,} bytes")
    with os.fdopen(descriptor, "rb") as file:
        return parse(file.read(about.st_size))


def parse(data: bytes) -> Proof:
    """Parse the bytes of a proof.json."""
    try:
        proof = json.loads(data, parse_constant=_no_constant, object_pairs_hook=_once)
    except MalformedError:
        raise
    except (ValueError, RecursionError, UnicodeError):
        raise MalformedError("it must be JSON, got something else") from None
    if not isinstance(proof, dict) or proof.get("format") != FORMAT:
        raise MalformedError(f'it must be an object with "format": "{FORMAT}"')
    if proof.get("version") != VERSION or isinstance(proof["version"], bool):
        raise MalformedError(f"it has version {proof.get('version')!r:.40}, this checker reads version {VERSION}")
    for name, known in (("election", ELECTIONS), ("bound", BOUNDS)):
        if proof.get(name) not in known:
            raise MalformedError(f"{name} must be one of {', '.join(known)}, got {proof.get(name)!r:.40}")
    if (unit := proof.get("unit", "samples")) not in [*UNITS]:
        raise MalformedError(f"unit must be one of {', '.join(UNITS)}, got {unit!r:.40}")
    if proof["election"] == "maximin" and proof["bound"] == "paper":
        raise MalformedError("bound must be tight for maximin, which is not in the paper, got 'paper'")
    k = _number(proof, "n_members", 1, MOST_MEMBERS)
    n_classes = _number(proof, "n_classes", 2, 65536)
    n = _number(proof, "n_inputs", 1, MOST_FILE)
    columns = [_column(proof, name, n) for name in ("prediction", "runner_up", "radius")]
    claims = [Claim(*row) for row in zip(*columns, strict=True)]
    spread = _spread(proof.get("spread"), k)
    return Proof(
        proof["election"], proof["bound"], k, n_classes, spread, _ballots(proof, n, k, n_classes), claims, unit
    )


def _no_constant(name: str) -> None:
    raise MalformedError(f"it must hold integers, got {name}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise MalformedError("it must name each key once")
    return unique


def _number(proof: dict[str, Any], name: str, least: int, most: int) -> int:
    value = proof.get(name)
    if type(value) is not int or not least <= value <= most:
        raise MalformedError(f"{name} must be an integer from {least} to {most}, got {value!r:.40}")
    return value


def _column(proof: dict[str, Any], name: str, n: int) -> list[int]:
    values = proof.get(name)
    if not isinstance(values, list) or len(values) != n:
        raise MalformedError(f"{name} must be a list of {n} integers, one per input")
    bad = next((i for i, value in enumerate(values) if type(value) is not int or value < 0), None)
    if bad is not None:
        raise MalformedError(f"{name} must hold non-negative integers, got {values[bad]!r:.40} for input {bad}")
    return values


def _spread(buckets: Any, n_members: int) -> Spread | None:
    if buckets is None:
        return None
    if not isinstance(buckets, list) or not 1 <= len(buckets) <= MOST_MEMBERS:
        raise MalformedError("spread must be null, or a list with the members of each bucket")
    for b, members in enumerate(buckets):
        if not isinstance(members, list) or any(type(j) is not int or not 0 <= j < n_members for j in members):
            raise MalformedError(f"spread must name members 0 to {n_members - 1} in bucket {b}")
        if len(set(members)) < len(members):
            raise MalformedError(f"spread must name each member at most once in bucket {b}")
    return Spread(buckets, n_members)


def _ballots(proof: dict[str, Any], n: int, k: int, n_classes: int) -> bytes | array[int]:
    about = proof.get("ballots")
    if not isinstance(about, dict) or not all(isinstance(about.get(name), str) for name in ("dtype", "sha256", "data")):
        raise MalformedError("ballots must be an object with dtype, sha256 and data")
    dtype = "uint8" if n_classes <= 256 else "uint16"
    if about["dtype"] != dtype or about.get("encoding") != "base64 of zlib":
        raise MalformedError(f"ballots must be {dtype}, as base64 of zlib")
    size = n * k * n_classes * (1 if dtype == "uint8" else 2)
    try:
        packed = base64.b64decode(about["data"], validate=True)
        if size > min(MOST_BALLOTS, 1100 * len(packed) + 1100):  # more than zlib can compress into these bytes
            raise MalformedError(f"ballots must unpack to {size:,} bytes, but hold too few")
        unpack = zlib.decompressobj()
        data = unpack.decompress(packed, size + 1)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise error if isinstance(error, MalformedError) else MalformedError("ballots are damaged") from None
    if len(data) != size or not unpack.eof or unpack.unused_data:
        raise MalformedError(f"ballots must be {size:,} bytes for {n} inputs, {k} members and {n_classes} classes")
    if hashlib.sha256(data).hexdigest() != about["sha256"]:
        raise MalformedError("ballots do not match their SHA-256: they were altered or damaged")
    if dtype == "uint8":
        return data
    wide = array("H", data)
    if sys.byteorder == "big":
        wide.byteswap()
    return wide


# --- the command -----------------------------------------------------------------------------------------------------


def check(proof: Proof, nodes: int = SEARCH) -> tuple[list[tuple[int, str]], int]:
    """Check every input; return all errors, and the number of inputs with a replayed attack on radius + 1 buckets."""
    wrong, exact = [], 0
    for i, claim in enumerate(proof.claims):
        verdict = check_input(proof.election, proof.bound, proof.rows(i), claim, proof.spread, nodes)
        exact += verdict.exact
        if verdict.wrong is not None:
            wrong.append((i, verdict.wrong))
    return wrong, exact


def main(arguments: Sequence[str] | None = None) -> int:
    """Check a file, print what was checked, and return the exit code."""
    parser = argparse.ArgumentParser(prog="check.py", description="Check every prediction and radius in a proof.json.")
    parser.add_argument("proof", help="file written by `runoff certify --export`")
    path = parser.parse_args(arguments).proof
    try:
        proof = read(path)
        wrong, exact = check(proof)
    except MalformedError as error:
        sys.stderr.write(f"Error: {path} is not a proof: {error}.\n")
        return 4
    n = len(proof.claims)
    if wrong:
        for i, what in wrong[:SHOWN]:
            sys.stderr.write(f"Error: input {i}: {what}.\n")
        sys.stderr.write(f"{len(wrong):,} of {n:,} certificates are wrong or not proven.\n")
        return 3
    buckets = "one bucket per member" if proof.spread is None else f"{len(proof.spread.buckets):,} buckets"
    sys.stdout.write(
        f"{n:,} inputs, {proof.n_members:,} members, {proof.n_classes:,} classes, {buckets}: {proof.election}, "
        f"{proof.bound} bound\n"
        f"Proven: {n:,} predictions and runner-ups, by holding each election again.\n"
        f"Proven: {n:,} radii; for {exact:,} of them an attack on radius + 1 buckets was replayed, so they are exact.\n"
        f"Radii count {UNITS[proof.unit]}.\n"
        "Not checked: that these are the ballots of the trained members, and that an edit reaches only the members of "
        "its bucket. `runoff verify` checks both on the run itself.\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
