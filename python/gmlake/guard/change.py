"""The change: what a rank needs more or less than its baseline says, and which line is the reason.

A line's name has its number in it, and numbers move. So lines are compared within their function:

    baseline   train.py:30 step  2 GiB     train.py:34 step  1 GiB
    now        train.py:31 step  2 GiB     train.py:35 step  3 GiB
               the same bytes: it moved    left over in both: this one grew, by 2 GiB
"""

from collections import defaultdict, namedtuple

# Bytes of a line in the baseline and now.
Line = namedtuple("Line", "name before after")

QUANTITIES = {"live_peak_bytes": "live", "reserved_peak_bytes": "PyTorch holds"}


def lines(before, after):
    """Lines whose bytes differ, those that grew most first.

    Both are bytes and blocks by name. The growths add up to that of the whole.
    """
    functions = defaultdict(lambda: ([], []))
    for side, rows in enumerate((before, after)):
        for name, (count, blocks) in rows.items():
            functions[function(name)][side].append((name, count, blocks))
    found = []
    for old, new in functions.values():
        found += paired(*without_same(old, new))
    return sorted(found, key=lambda line: (line.before - line.after, line.name))


def function(name):
    """File and function of a line, without its number; another name as it is."""
    place, _, rest = name.partition(" ")
    file, _, number = place.rpartition(":")
    return (file, rest) if number.isdigit() else name


def without_same(old, new):
    """The rows that have no twin: the same name and bytes, or else only the same bytes and blocks."""
    for key in (lambda row: row, lambda row: row[1:]):
        left = defaultdict(list)
        for row in old:
            left[key(row)].append(row)
        rest = [row for row in new if not (left[key(row)] and left[key(row)].pop())]
        old, new = [row for rows in left.values() for row in rows], rest
    return old, new


def paired(old, new):
    """Rows as lines: those of one name are one; of what is left, the first with the first, by line numbers."""
    was = {name: count for name, count, _ in old}
    found, came = [], []
    for name, count, _ in new:
        if name in was:
            found.append(Line(name, was.pop(name), count))
        else:
            came.append((name, count))
    gone = sorted(was.items(), key=lambda row: number(row[0]))
    came.sort(key=lambda row: number(row[0]))
    if len(gone) == len(came):
        return found + [Line(name, one[1], count) for one, (name, count) in zip(gone, came)]
    return found + [Line(n, 0, c) for n, c in came] + [Line(n, c, 0) for n, c in gone]


def number(name):
    """The number in a line's name; 0 where there is none."""
    digits = name.partition(" ")[0].rpartition(":")[2]
    return int(digits) if digits.isdigit() else 0


def is_beyond(before, after, tolerance):
    """Whether a quantity grew by more than is tolerated: a share, or bytes."""
    is_share, amount = tolerance
    return after - before > (amount * before if is_share else amount)
