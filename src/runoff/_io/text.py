"""Numbers formatted for people."""


def duration(seconds: float) -> str:
    """Return a duration as text, as in 4.2 s, 42 s, 3 min 20 s or 2 h 56 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if (whole := round(seconds)) < 600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def count(n: int, noun: str) -> str:
    """Return a number with its noun, as in 1 edit or 2 edits."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
