"""Counts of the ballots of one input: first choices, votes, and members that rank one class above another.

`row` contains the scores of one input, (n_members, n_classes). A tie in scores ranks the lower class index first, and a
tie in votes goes to the lower class index.
"""

from typing import Any

from runoff._kernels.compiling import helper, kernel


@helper
def first_choices(row: Any, first: Any, votes: Any) -> bool:
    """Fill the first choice of each member and the votes of each class; return False if a score is not finite."""
    n_members, n_classes = row.shape
    votes[:] = 0
    broken = False
    for j in range(n_members):
        member = row[j]
        best, choice = member[0], 0
        for c in range(1, n_classes):
            if member[c] > best:
                best, choice = member[c], c
        for c in range(n_classes):
            broken |= member[c] - member[c] != 0  # true for NaN and infinities only
        first[j] = choice
        votes[choice] += 1
    return not broken


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
    n_members, n_classes = row.shape
    above[:] = 0
    for j in range(n_members):
        member = row[j]
        mine = member[a]
        for c in range(a):
            above[c] += mine > member[c]
        for c in range(a + 1, n_classes):
            above[c] += mine >= member[c]


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
            mine, won = rows[j, a], 0
            for b in range(a):
                won += mine > rows[j, b]
            for b in range(a + 1, n_classes):
                won += mine >= rows[j, b]
            out[j, a] = won
