"""Check a proof.json of `runoff certify --export`: every prediction, and every certified radius.

    python -m runoff.check proof.json      or, copied out alone:      python check.py proof.json

This file needs nothing but Python's standard library, and shares no code with the rest of runoff. It exits with code 0
if everything is proven, 3 if a certificate is wrong or cannot be proven, 4 if the file is malformed. The format of
proof.json and the proofs behind the code are in docs/verify.md and docs/proofs.md.

What a radius r claims: an adversary who picks any r buckets, and hands in any ballots at all for the members that these
buckets reach, does not change the prediction. Ties between classes go to the lower class index, everywhere.

Notation of the paper: N[c] first choices for class c; gap(a, b) = N[a] - N[b] + [b > a], so a beats b in round 1 when
gap(a, b) > 0; w the prediction, s the runner-up, k the number of members. Run-off: the two classes with the most first
choices advance, and the one that more members rank above the other wins.
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
from typing import Any, NamedTuple

FORMAT, VERSION = "runoff proof", 1
ELECTIONS, BOUNDS = ("plurality", "runoff"), ("tight", "paper")
MOST_FILE, MOST_BALLOTS, MOST_MEMBERS = 2**29, 2**31, 10**6  # bytes, bytes, members and buckets
SEARCH = 20_000  # nodes, to exclude an attack
ATTACKS = 3  # threats for which an attack is looked for that need not exist
SHOWN = 5  # failures that are named

Row = Sequence[int]  # a ballot: points for each class, n_classes - 1 for the first choice down to 0 for the last


class MalformedError(ValueError):
    """A file that is not a proof: one sentence says why."""


# --- elections -------------------------------------------------------------------------------------------------------


def top_two(votes: Sequence[int]) -> tuple[int, int]:
    """Return the classes with the most votes and with the next most."""
    first = votes.index(max(votes))
    second = max((c for c in range(len(votes)) if c != first), key=lambda c: (votes[c], -c))
    return first, second


def hold(election: str, ballots: Sequence[Row]) -> tuple[int, int]:
    """Hold an election: return the winner and the runner-up (for a run-off, the other finalist)."""
    n_classes = len(ballots[0])
    votes = [0] * n_classes
    for row in ballots:
        votes[row.index(n_classes - 1)] += 1
    a, b = top_two(votes)
    if election == "plurality":
        return a, b
    for_a = sum([row[a] > row[b] for row in ballots])
    a_wins = 2 * for_a > len(ballots) or (2 * for_a == len(ballots) and a < b)
    return (a, b) if a_wins else (b, a)


class Attack(NamedTuple):
    """Members that are taken over, and the class that each ranks first from then on. All rank w last."""

    members: Sequence[int]
    firsts: Sequence[int]


class Input:
    """One input's ballots, counted."""

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
        self._supporters: dict[int, list[int]] = {}

    def gap(self, a: int, b: int) -> int:
        """Return N[a] - N[b] + [b > a] (Definition 3.1)."""
        return self.votes[a] - self.votes[b] + (b > a)

    def supporters(self, c: int) -> list[int]:
        """Return the members that rank w above c."""
        if c not in self._supporters:
            w = self.w
            self._supporters[c] = [j for j, row in enumerate(self.ballots) if row[w] > row[c]]
        return self._supporters[c]

    def final_gap(self, c: int) -> int:
        """Return the gap of w over c in round 2; c wins there when it is 0 or less."""
        return 2 * len(self.supporters(c)) - self.k + (c > self.w)

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
# Each function below takes the members that serve one threat best, in an order in which no exchange of a taken member
# for another one would help. So if they do not suffice, no members of that number do. Taking over one more member never
# hurts, since it may keep its ballot: no attack with r members means none with fewer, and one with r + 1 makes r exact.


def overtaken(given: Input, c: int, size: int) -> Attack | None:
    """Plurality: class c gets more votes than w. Each voter of w counts twice, of others once, of c not at all."""
    w = given.w
    others = [j for u, own in given.voters.items() if u not in (w, c) for j in own]
    taken = (given.voters.get(w, []) + others)[:size]
    left = given.votes[w] - min(size, given.votes[w])
    mine = given.votes[c] + len(taken)
    return Attack(taken, [c] * len(taken)) if mine > left or (mine == left and c < w) else None


def eliminated(given: Input, size: int) -> Attack | None:
    """Run-off: two classes beat w in round 1, so that w does not advance.

    The two with the smallest gaps need the fewest votes. A taken voter of w is a vote to hand out, and lowers what both
    need; a voter of a third class is a vote to hand out; so is one that a rival can spare.
    """
    w, votes = given.w, given.votes
    if len(given.rivals) < 2:
        return None
    pair = sorted(given.rivals, key=lambda c: (given.gap(w, c), c))[:2]
    taken = (given.voters.get(w, []) + [j for u, own in given.voters.items() if u not in (w, *pair) for j in own])[
        :size
    ]
    left = votes[w] - min(size, votes[w])
    goals = [left + (c > w) for c in pair]  # so many votes beat w: as many, or one more where w has the lower index
    for c, goal in zip(pair, goals, strict=True):
        taken += given.voters.get(c, [])[: min(size - len(taken), max(0, votes[c] - goal))]
    needs = [max(0, goal - votes[c]) for c, goal in zip(pair, goals, strict=True)]
    if sum(needs) > len(taken):
        return None
    return Attack(taken, [pair[0]] * needs[0] + [pair[1]] * (len(taken) - needs[0]))


def beaten(given: Input, c: int, size: int) -> Attack | None:
    """Run-off: class c beats every class but w in round 1, and w in round 2.

    No ballot serves that better than one that ranks c first and w last, and no voter of c needs to be taken. c has then
    N[c] + size votes, so every other class u must lose all voters above that number; those that rank w above c are
    taken first, since they count in round 2, too. What is left of `size` goes to further members that rank w above c.
    """
    w, votes = given.w, given.votes
    size = min(size, given.k - votes[c])
    total = votes[c] + size
    must = {u: votes[u] - total + (u < c) for u in given.voters if u not in (c, w)}
    must = {u: count for u, count in must.items() if count > 0}
    if sum(must.values()) > size:
        return None
    supporters = given.supporters(c)
    useful, taken = set(supporters), []
    for u, count in must.items():
        taken += sorted(given.voters[u], key=lambda j: j not in useful)[:count]
    rest = useful.difference(taken)
    taken += sorted(rest)[: size - len(taken)]
    against = len(supporters) - len(useful.intersection(taken))
    c_wins = 2 * against < given.k or (2 * against == given.k and c < w)
    if not c_wins:
        return None
    if len(taken) < size:  # the votes in round 1 count on all of them
        chosen = set(taken)
        taken += [j for j in range(given.k) if j not in chosen and given.first[j] != c][: size - len(taken)]
    return Attack(taken, [c] * len(taken))


def attack_alone(given: Input, size: int) -> Attack | None:
    """Return an attack that takes over `size` members, or None if no such attack exists."""
    if given.election == "plurality":
        tries: Iterator[Attack | None] = (overtaken(given, c, size) for c in given.rivals)
    else:
        tries = (beaten(given, c, size) if c is not None else eliminated(given, size) for c in (None, *given.rivals))
    return next((attack for attack in tries if attack is not None), None)


def exact_alone(given: Input) -> int:
    """Return the exact radius."""
    low, high = 0, given.k  # no attack with `low` members, one with `high`: with all of them
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if attack_alone(given, middle) else (middle, high)
    return low


def paper_alone(given: Input) -> int:
    """Return the radius of Theorem 3.4 with Lemmas 3.5 and 3.6, which may be below the exact one."""

    def half(gap: int) -> int:
        return (max(0, gap) + 1) // 2

    w, s = given.w, given.s
    gaps = sorted(max(0, given.gap(w, c)) for c in given.rivals)
    if given.election == "plurality":
        return half(gaps[0]) - 1
    costs = [max(half(given.gap(s, c)) if c != s else 0, half(given.final_gap(c))) for c in given.rivals]
    if len(gaps) > 1:  # the table dp[g1, g2] of Lemma 3.6 in closed form
        costs.append(max(half(gaps[1]), (gaps[0] + gaps[1] + 2) // 3))
    return min(costs) - 1


# --- a spread: rows that every attack must meet ----------------------------------------------------------------------


class Spread:
    """Which members each bucket reaches."""

    def __init__(self, buckets: Sequence[Sequence[int]], n_members: int) -> None:
        self.buckets = buckets
        self.of_member: list[list[int]] = [[] for _ in range(n_members)]
        for b, members in enumerate(buckets):
            for j in members:
                self.of_member[j].append(b)
        self.reached = [j for j, own in enumerate(self.of_member) if own]

    def is_one_to_one(self) -> bool:
        """Whether every bucket reaches one member of its own, and every member is reached."""
        return len(self.buckets) == len(self.of_member) == len({b[0] for b in self.buckets if len(b) == 1})


class Need(NamedTuple):
    """One thing that a threat needs: the powers of the taken members must sum to at least the gap.

    A member's power is `base`, plus `by_vote` of its first choice, plus 2 if it ranks w above `final`: the most that
    taking it over can lower the gap.
    """

    gap: int
    base: int
    by_vote: dict[int, int]
    final: int | None = None


class Threat(NamedTuple):
    """One way to change the prediction: all needs must be met by the same members. `to` are the classes that gain."""

    to: tuple[int, ...]
    needs: list[Need]


def passing(given: Input, u: int, c: int) -> Need:
    """Class c overtakes u (Lemma 3.7): voters of u count twice, of c not at all, of others once."""
    return Need(given.gap(u, c), 1, {u: 1, c: -1})


class Counts:
    """Powers of the buckets of a spread for one input."""

    def __init__(self, given: Input, spread: Spread) -> None:
        self.given, self.spread = given, spread
        self.sizes = [len(members) for members in spread.buckets]
        self._votes: dict[int, list[int]] = {}
        self._powers: dict[Any, list[int]] = {}
        self._sums: dict[Any, int] = {}

    def _tally(self, members: Sequence[int], each: int) -> list[int]:
        counts = [0] * len(self.sizes)
        for j in members:
            for b in self.spread.of_member[j]:
                counts[b] += each
        return counts

    def powers(self, need: Need) -> list[int]:
        """Return each bucket's power: the sum over its members."""
        by_vote = tuple(sorted((c, each) for c, each in need.by_vote.items() if each and self.given.votes[c]))
        key = (need.base, by_vote, need.final)
        if key not in self._powers:
            powers = [need.base * size for size in self.sizes]
            for c, each in by_vote:
                if c not in self._votes:
                    self._votes[c] = self._tally(self.given.voters[c], 1)
                powers = [power + each * count for power, count in zip(powers, self._votes[c], strict=True)]
            if need.final is not None:
                more = self._tally(self.given.supporters(need.final), 2)
                powers = [power + count for power, count in zip(powers, more, strict=True)]
            self._powers[key] = powers
        return self._powers[key]

    def _most(self, need: Need, size: int) -> int:
        """Return the sum of the `size` largest powers."""
        key = (need.base, tuple(need.by_vote.items()), need.final, size)
        if key not in self._sums:
            self._sums[key] = sum(sorted(self.powers(need), reverse=True)[:size])
        return self._sums[key]

    def excludes(self, need: Need, size: int) -> bool:
        """Whether no `size` buckets meet a need: even the largest powers sum to less than the gap (Algorithm 4)."""
        if need.gap <= 0:
            return False
        # Without what lowers them powers are at least as large, and the same for many needs: that is tried first.
        larger = {c: each for c, each in need.by_vote.items() if each > 0}
        return self._most(need._replace(by_vote=larger), size) < need.gap or self._most(need, size) < need.gap

    def member_powers(self, need: Need) -> list[int]:
        """Return each member's power."""
        powers = [need.base + need.by_vote.get(c, 0) for c in self.given.first]
        for j in self.given.supporters(need.final) if need.final is not None else ():
            powers[j] += 2
        return powers


def threats(given: Input, counts: Counts, size: int, paper: bool) -> Iterator[Threat]:
    """Yield the threats that single needs do not exclude for `size` buckets.

    With `paper`, the threats to be beaten have only the needs that Theorem 3.4 uses: the runner-up's and round 2's.
    """
    w, s = given.w, given.s
    passes = {c: passing(given, w, c) for c in given.rivals}
    possible = [c for c in given.rivals if not counts.excludes(passes[c], size)]
    if given.election == "plurality":
        yield from (Threat((c,), [passes[c]]) for c in possible)
        return
    # Eliminated by c1 and c2: both beat w in round 1. Lemma 3.8, with the gaps added as they are: setting negative ones
    # to 0 first, as in the statement of the lemma, is unsound (docs/proofs.md).
    for c1, c2 in combinations(possible, 2):
        both = Need(passes[c1].gap + passes[c2].gap, 1, {w: 2, c1: -1, c2: -1})
        if not counts.excludes(both, size):
            yield Threat((c1, c2), [passes[c1], passes[c2], both])
    # Beaten by c: it beats every class but w in round 1, and w in round 2.
    for c in given.rivals:
        ahead = [u for u in given.voters if u not in (c, w) and (u == s or not paper)]
        needs = [need for need in (passing(given, u, c) for u in ahead) if need.gap > 0]
        if any(counts.excludes(need, size) for need in needs):
            continue
        final = Need(given.final_gap(c), 0, {}, c)
        if final.gap > 0:
            needs.append(final)
        if counts.excludes(final, size):
            continue
        if (
            len(needs) > 1 and not paper
        ):  # what must hold for each holds for the sum, which sees them compete for members
            by_vote: dict[int, int] = {}
            for need in needs:
                for u, each in need.by_vote.items():
                    by_vote[u] = by_vote.get(u, 0) + each
            both = Need(sum(n.gap for n in needs), sum(n.base for n in needs), by_vote, c if final.gap > 0 else None)
            if counts.excludes(both, size):
                continue
            needs.append(both)
        yield Threat((c,), needs)


def search(counts: Counts, needs: list[Need], size: int, limit: int) -> list[int] | bool | None:
    """Search for `size` buckets that meet all needs, each member counted once.

    Return the buckets; None where there are none; False where `limit` nodes did not decide it. Each bucket is taken or
    left out below a node, and a node is cut only when some need is out of reach for the largest powers that remain.
    """
    buckets, of_member = counts.spread.buckets, counts.spread.of_member
    own = [counts.member_powers(need) for need in needs]
    if any(sum([power[j] for j in counts.spread.reached]) < need.gap for need, power in zip(needs, own, strict=True)):
        return None  # not even all buckets together
    everything = [list(counts.powers(need)) for need in needs]
    stack: list[tuple[list[list[int]], list[int], frozenset[int], list[int], int]]
    stack = [(everything, [need.gap for need in needs], frozenset(), [], size)]
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
            power[pick] = 0  # of no use any more: left out
        stack.append((without, gaps, covered, chosen, more))
        fresh = [j for j in buckets[pick] if j not in covered]
        gains = [sum([power[j] for j in fresh]) for power in own]
        for after, power in zip(left, own, strict=True):
            for j in fresh:
                for b in of_member[j] if power[j] else ():
                    after[b] = max(0, after[b] - power[j])  # 0 stays 0: what was left out
            after[pick] = 0
        gaps = [gap - gain for gap, gain in zip(gaps, gains, strict=True)]
        stack.append((left, gaps, covered.union(fresh), [*chosen, pick], more - 1))
    return None


def attack_with(given: Input, threat: Threat, members: Sequence[int]) -> Attack:
    """Return the ballots with which the members that some buckets reach serve a threat best."""
    if len(threat.to) == 1:
        return Attack(members, [threat.to[0]] * len(members))
    first, second = threat.to
    taken = set(members)
    mine, of_w = (sum(given.first[j] == c and j not in taken for j in range(given.k)) for c in (first, given.w))
    enough = max(0, of_w + (first > given.w) - mine)
    return Attack(members, [first if i < enough else second for i in range(len(members))])


# --- one input -------------------------------------------------------------------------------------------------------


class Claim(NamedTuple):
    """What is claimed of one input."""

    prediction: int
    runner_up: int
    radius: int


class Verdict(NamedTuple):
    """What was found: what is wrong with the claim, or nothing; and whether an attack of radius + 1 was replayed."""

    wrong: str | None = None
    exact: bool = False
    unproven: bool = False  # nothing was found to be wrong, but the search gave up


def check_input(
    election: str, bound: str, ballots: Sequence[Row], claim: Claim, spread: Spread | None, nodes: int = SEARCH
) -> Verdict:
    """Check one input's prediction, runner-up and radius. `spread` is None where every member has its own bucket."""
    given = Input(election, ballots)
    for what, found, claimed in (("prediction", given.w, claim[0]), ("runner-up", given.s, claim[1])):
        if found != claimed:
            return Verdict(f"the {what} is class {found}, claimed {claimed}")
    most = given.k if spread is None else len(spread.buckets)
    if claim.radius > most:
        return Verdict(f"a radius is at most {most}, the number of buckets, claimed {claim.radius}")
    if spread is None or spread.is_one_to_one():
        return _check_alone(given, bound, claim.radius)
    return _check_spread(given, bound, claim.radius, spread, nodes)


def _check_alone(given: Input, bound: str, radius: int) -> Verdict:
    if radius and (attack := attack_alone(given, radius)) is not None:
        if not given.flips(attack):  # the construction and the election disagree: nothing is proven
            return Verdict(f"the claimed radius {radius} could not be proven", unproven=True)
        found = exact_alone(given) if bound == "tight" else paper_alone(given)
        members = ", ".join(map(str, sorted(attack.members)[:8])) + (", ..." if radius > 8 else "")
        return Verdict(f"the radius is {found}, claimed {radius}: members {members} change the prediction")
    if bound == "paper" and (found := paper_alone(given)) != radius:
        return Verdict(f"the radius of Theorem 3.4 is {found}, claimed {radius}")
    attack = attack_alone(given, radius + 1) if radius < given.k else None
    exact = attack is not None and len(attack.members) <= radius + 1 and given.flips(attack)
    if bound == "tight" and not exact:
        return Verdict(f"the radius is {exact_alone(given)}, claimed {radius}")
    return Verdict(exact=exact)


def _check_spread(given: Input, bound: str, radius: int, spread: Spread, nodes: int) -> Verdict:
    counts = Counts(given, spread)
    paper = bound == "paper"
    open_threats = list(threats(given, counts, radius, paper)) if radius else []
    if open_threats and paper:
        return Verdict(f"the radius of Theorem 3.4 is below the claimed {radius}: {_told(given, open_threats[0])}")
    for threat in open_threats:
        found = search(counts, threat.needs, radius, nodes)
        if found is False:
            return Verdict(f"the claimed radius {radius} could not be proven: {_told(given, threat)}", unproven=True)
        if found is not None:
            names = ", ".join(map(str, sorted(found)[:8]))  # type: ignore[arg-type]
            return Verdict(f"the radius is below the claimed {radius}: {_told(given, threat)} with buckets {names}")
    if radius >= len(spread.buckets):
        return Verdict()
    if next(threats(given, counts, radius + 1, True), None) is None:
        return Verdict(f"the radius of Theorem 3.4 is above the claimed {radius}")
    return Verdict(exact=_is_exact(given, counts, radius))


def _is_exact(given: Input, counts: Counts, radius: int) -> bool:
    """Whether an attack on radius + 1 buckets was found, and changes the prediction when it is replayed."""
    for threat in islice(threats(given, counts, radius + 1, False), ATTACKS):
        found = search(counts, threat.needs, radius + 1, radius + 10)
        if isinstance(found, list):
            members = sorted({j for b in found for j in counts.spread.buckets[b]})
            if given.flips(attack_with(given, threat, members)):
                return True
    return False


def _told(given: Input, threat: Threat) -> str:
    if len(threat.to) == 2:
        return f"classes {threat.to[0]} and {threat.to[1]} may eliminate class {given.w} in round 1"
    return f"class {threat.to[0]} may beat class {given.w}"


# --- the file --------------------------------------------------------------------------------------------------------


class Proof(NamedTuple):
    """A proof.json, checked for its form."""

    election: str
    bound: str
    n_members: int
    n_classes: int
    spread: Spread | None
    ballots: bytes | array[int]
    claims: list[Claim]

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
        given = json.loads(data, parse_constant=_no_constant, object_pairs_hook=_once)
    except MalformedError:
        raise
    except (ValueError, RecursionError, UnicodeError):
        raise MalformedError("it must be JSON, got something else") from None
    if not isinstance(given, dict) or given.get("format") != FORMAT:
        raise MalformedError(f'it must be an object with "format": "{FORMAT}"')
    if given.get("version") != VERSION or isinstance(given["version"], bool):
        raise MalformedError(f"it has version {given.get('version')!r:.40}, this checker reads version {VERSION}")
    for name, known in (("election", ELECTIONS), ("bound", BOUNDS)):
        if given.get(name) not in known:
            raise MalformedError(f"{name} must be one of {', '.join(known)}, got {given.get(name)!r:.40}")
    k = _number(given, "n_members", 1, MOST_MEMBERS)
    n_classes = _number(given, "n_classes", 2, 65536)
    n = _number(given, "n_inputs", 1, MOST_FILE)
    columns = [_column(given, name, n) for name in ("prediction", "runner_up", "radius")]
    claims = [Claim(*row) for row in zip(*columns, strict=True)]
    spread = _spread(given.get("spread"), k)
    return Proof(given["election"], given["bound"], k, n_classes, spread, _ballots(given, n, k, n_classes), claims)


def _no_constant(name: str) -> None:
    raise MalformedError(f"it must hold whole numbers, got {name}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise MalformedError("it must name each key once")
    return found


def _number(given: dict[str, Any], name: str, least: int, most: int) -> int:
    value = given.get(name)
    if type(value) is not int or not least <= value <= most:
        raise MalformedError(f"{name} must be a whole number from {least} to {most}, got {value!r:.40}")
    return value


def _column(given: dict[str, Any], name: str, n: int) -> list[int]:
    values = given.get(name)
    if not isinstance(values, list) or len(values) != n:
        raise MalformedError(f"{name} must be a list of {n} whole numbers, one per input")
    bad = next((i for i, value in enumerate(values) if type(value) is not int or value < 0), None)
    if bad is not None:
        raise MalformedError(f"{name} must hold whole numbers, none negative, got {values[bad]!r:.40} for input {bad}")
    return values


def _spread(given: Any, n_members: int) -> Spread | None:
    if given is None:
        return None
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_MEMBERS:
        raise MalformedError("spread must be null, or a list with the members of each bucket")
    for b, members in enumerate(given):
        if not isinstance(members, list) or any(type(j) is not int or not 0 <= j < n_members for j in members):
            raise MalformedError(f"spread must name members 0 to {n_members - 1} in bucket {b}")
        if len(set(members)) < len(members):
            raise MalformedError(f"spread must name each member at most once in bucket {b}")
    return Spread(given, n_members)


def _ballots(given: dict[str, Any], n: int, k: int, n_classes: int) -> bytes | array[int]:
    about = given.get("ballots")
    if not isinstance(about, dict) or not all(isinstance(about.get(name), str) for name in ("dtype", "sha256", "data")):
        raise MalformedError("ballots must be an object with dtype, sha256 and data")
    dtype = "uint8" if n_classes <= 256 else "uint16"
    if about["dtype"] != dtype or about.get("encoding") != "base64 of zlib":
        raise MalformedError(f"ballots must be {dtype}, as base64 of zlib")
    size = n * k * n_classes * (1 if dtype == "uint8" else 2)
    try:
        packed = base64.b64decode(about["data"], validate=True)
        if size > min(MOST_BALLOTS, 1100 * len(packed) + 1100):  # more than zlib can pack into so few bytes
            raise MalformedError(f"ballots promise {size:,} bytes, which they cannot hold")
        unpack = zlib.decompressobj()
        data = unpack.decompress(packed, size + 1)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise error if isinstance(error, MalformedError) else MalformedError("ballots are damaged") from None
    if len(data) != size or not unpack.eof or unpack.unused_data:
        raise MalformedError(f"ballots must be {size:,} bytes for {n} inputs, {k} members and {n_classes} classes")
    if hashlib.sha256(data).hexdigest() != about["sha256"]:
        raise MalformedError("ballots have another SHA-256 than the file says: they were altered or damaged")
    if dtype == "uint8":
        return data
    wide = array("H", data)
    if sys.byteorder == "big":
        wide.byteswap()
    return wide


# --- the command -----------------------------------------------------------------------------------------------------


def check(proof: Proof, nodes: int = SEARCH) -> tuple[list[tuple[int, str]], int]:
    """Check every input: return what is wrong, by input, and for how many an attack of radius + 1 was replayed."""
    wrong, exact = [], 0
    for i, claim in enumerate(proof.claims):
        verdict = check_input(proof.election, proof.bound, proof.rows(i), claim, proof.spread, nodes)
        exact += verdict.exact
        if verdict.wrong is not None:
            wrong.append((i, verdict.wrong))
    return wrong, exact


def main(arguments: Sequence[str] | None = None) -> int:
    """Check a file, say what was checked, and return the exit code."""
    parser = argparse.ArgumentParser(prog="check.py", description="Check every prediction and radius in a proof.json.")
    parser.add_argument("proof", help="a file that `runoff certify --export` wrote")
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
        "Not checked: that these are the ballots of the trained members, and that an edit reaches only the members of "
        "its bucket. `runoff verify` checks both on the run itself.\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
