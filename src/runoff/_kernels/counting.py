"""Counts of the ballots of one input: first choices, votes, and members that rank one class above another.

`row` contains the scores of one input, (n_members, n_classes). A tie in scores ranks the lower class index first, and a
tie in votes goes to the lower class index.

Loops over a part of an array run over a slice from 0. An index that could be negative counts from the end, as in
Python, and the test for it prevents vector instructions.
"""

from typing import Any

from runoff._kernels.compiling import helper, kernel

MANY = 64  # classes from which on a member's first choice is found faster in two steps


@helper
def first_choices(row: Any, first: Any, votes: Any) -> bool:
    """Fill the first choice of each member and the votes of each class; return False if a score is not finite."""
    n_members, n_classes = row.shape
    votes[:] = 0
    broken = False
    for j in range(n_members):
        member = row[j]
        best, choice = member[0], 0
        if n_classes >= MANY:
            choice = _first_index(member, _largest(member))
        else:
            for c in range(1, n_classes):
                if member[c] > best:
                    best, choice = member[c], c
        for c in range(n_classes):
            broken |= member[c] - member[c] != 0  # true for NaN and infinities only
        first[j] = choice
        votes[choice] += 1
    return not broken


@helper
def _largest(member: Any) -> Any:
    """Return the largest score, from four maxima over every fourth one, which vector instructions find together."""
    a, b, c, d = member[0], member[0], member[0], member[0]
    n_quarters = member.shape[0] // 4
    for q in range(n_quarters):
        part = member[4 * q : 4 * q + 4]
        a = part[0] if part[0] > a else a
        b = part[1] if part[1] > b else b
        c = part[2] if part[2] > c else c
        d = part[3] if part[3] > d else d
    for x in member[4 * n_quarters :]:
        a = x if x > a else a
    a = b if b > a else a
    c = d if d > c else c
    return c if c > a else a


@helper
def _first_index(member: Any, score: Any) -> int:
    """Return the lowest index of a score, or the last index if no score equals it."""
    last: int = member.shape[0] - 1
    at = last
    for c in range(member.shape[0]):
        at = min(at, c if member[c] == score else last)
    return at


@helper
def top_two(votes: Any) -> tuple[int, int]:
    """Return the two classes with the most votes; ties go to the lower index."""
    a, b = 0, 1
    if votes[1] > votes[0]:
        a, b = 1, 0
    for c in range(2, votes.shape[0]):
        if votes[c] > votes[a]:
            a, b = c, a
        elif votes[c] > votes[b]:
            b = c
    return a, b


@helper
def ranks_above(member: Any, a: int, b: int) -> bool:
    """Return whether a member ranks class a above class b."""
    return member[a] > member[b] or (member[a] == member[b] and a < b)


@helper
def count_above(row: Any, a: int, above: Any) -> None:
    """Fill `above` with M[a, c], the number of members that rank a above c, for every class c (0 for a itself)."""
    above[:] = 0
    later = above[a + 1 :]
    for j in range(row.shape[0]):
        member, rest = row[j], row[j, a + 1 :]
        mine = member[a]
        for c in range(a):
            above[c] += mine > member[c]
        for c in range(later.shape[0]):
            later[c] += mine >= rest[c]


@helper
def gap(votes: Any, a: int, b: int) -> int:
    """Return the gap N_a - N_b + [b > a] (Definition 3.1); a beats b when it is positive."""
    lead: int = votes[a] - votes[b] + (b > a)
    return lead


@kernel
def give_points(rows: Any, out: Any) -> None:
    """Fill `out` with one point per class ranked below, which is faster than sorting for few classes."""
    n_classes = rows.shape[1]
    for j in range(rows.shape[0]):
        for a in range(n_classes):
            mine, won, rest = rows[j, a], 0, rows[j, a + 1 :]
            for b in range(a):
                won += mine > rows[j, b]
            for b in range(rest.shape[0]):
                won += mine >= rest[b]
            out[j, a] = won
