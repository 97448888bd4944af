"""The out-of-memory of every report, in PyTorch, by the figures of its message, and then what cures it:

python -m gmlake predict --memory 300GiB tests/data/strangers/rebuild.py tests/data/strangers/cures.csv

Each report is rebuilt on a GPU that has as much left as the message says: the same bytes live, the same bytes cached
in pieces that are too small, the same request. It runs with the defaults and with expandable segments, and then with
what our answer advises. Reports whose figures do not make an out-of-memory have no row: a driver that refuses what it
has, a message without figures, a tensor above what the driver gives in one piece.
"""

import csv
import ctypes
import pathlib
import sys

import torch

UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
GRANULE = 2 << 20
DRIVER = ctypes.CDLL("libcuda.so.1")
SEGMENT = 20 << 20
"""PyTorch takes memory in pieces of this size: a state may have so many bytes more than the figures."""


def bytes_of(text):
    if not text:
        return None
    number, unit = text.split()
    return round(float(number) * UNITS[unit])


def tensor(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


class Others:
    """Memory of the GPU that is not PyTorch's, as that of other processes. A real driver keeps the last bytes."""

    KEPT = 64 << 20

    def __init__(self, size):
        self.at = ctypes.c_uint64()
        for less in range(0, self.KEPT, GRANULE):
            if size <= less:
                return
            wanted = ctypes.c_size_t(size - less)
            if DRIVER.cuMemAlloc_v2(ctypes.byref(self.at), wanted) == 0:
                return
        raise RuntimeError(f"the driver refuses {size} bytes")

    def end(self):
        if self.at.value:
            assert DRIVER.cuMemFree_v2(self.at) == 0
            self.at = ctypes.c_uint64()


class Report:
    """The figures of a message. What it leaves out is as much as the others allow."""

    def __init__(self, row):
        self.name, self.cause = row["file"], row["causes"].split()[0]
        self.requested, self.allowed = bytes_of(row["requested"]), bytes_of(row["allowed"])
        self.allocated = bytes_of(row["allocated"])
        self.cached = bytes_of(row["unallocated"]) or 0
        if self.allocated is None:
            # Who holds it is not told: tensors do.
            self.allocated, self.cached = self.cached, 0
        self.held = self.allocated + self.cached
        self.free = self.left_of(bytes_of(row["total"]), bytes_of(row["free"]))
        if self.requested is None:
            self.requested = self.smallest_refused()
        if self.allowed:
            # A figure of three digits may stand for 5 MiB less.
            self.allowed = min(self.allowed, max(self.held + self.requested - 1, self.allowed - (5 << 20)))

    def left_of(self, total, free):
        if free is not None or total is None:
            return free
        left = max(0, total - self.held)
        return min(left, max(0, self.requested - GRANULE)) if self.requested else left

    def smallest_refused(self):
        if self.allowed:
            return self.allowed - self.held + GRANULE
        return None if self.free is None else self.free + GRANULE

    def is_out_of_memory(self):
        """Whether the figures alone refuse the request."""
        if self.requested is None or not self.held + (self.free or 0):
            return False
        if self.cause == "limit":
            return bool(self.allowed) and self.held + self.requested > self.allowed
        return self.free is not None and self.free < self.requested

    def fits(self):
        """Whether this GPU can be as full as the report's was: a virtual one of 300 GiB can."""
        return self.held + (self.free or self.requested) + SEGMENT <= torch.cuda.mem_get_info()[0]


def pieces(report):
    """The sizes of what is kept and of the gaps between: no gap serves the request."""
    gap = max(512, int(report.requested * 0.9) // 512 * 512)
    count = -(-report.cached // gap) if report.cached else 0
    gaps = [report.cached // count // 512 * 512] * count if count else []
    kept = report.allocated // (count + 1) // 512 * 512
    return [kept] * (count + 1), gaps


def build(report):
    """The tensors of the report: one segment, in which every second piece goes. Its last bytes are kept."""
    kept, gaps = pieces(report)
    if kept[0]:
        tensor(sum(kept) + sum(gaps))
    held, gone = [], []
    for size, gap in zip(kept, [*gaps, 0], strict=True):
        held += [tensor(size)] if size else []
        gone += [tensor(gap)] if gap else []
    rest = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    held += [tensor(rest)] if rest else []
    return held


def is_served(size):
    try:
        tensor(size)
    except torch.OutOfMemoryError:
        return False
    return True


def outcome(report, setting, cure=None):
    """Whether the request is served in the report's state, with a setting and after a cure."""
    torch._C._accelerator_setAllocatorSettings(setting)
    device = torch.cuda.get_device_properties(0).total_memory
    if report.allowed:
        torch.cuda.set_per_process_memory_fraction(report.allowed / device)
    held = build(report)
    # A limit refuses what the GPU has.
    left = report.requested + SEGMENT if report.free is None else report.free
    others = Others(max(0, torch.cuda.mem_get_info()[0] - left) // GRANULE * GRANULE)
    check(report, left)
    if cure:
        cure(report, others)
    served = is_served(report.requested)
    others.end()
    del held
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()
    return served


def check(report, left):
    """The state is the report's, or the run ends."""
    state = {
        "allocated": (torch.cuda.memory_allocated(), report.allocated),
        "cached": (torch.cuda.memory_reserved() - torch.cuda.memory_allocated(), report.cached),
        "free": (torch.cuda.mem_get_info()[0], left),
    }
    for what, (built, told) in state.items():
        assert abs(built - told) <= (Others.KEPT if what == "free" else SEGMENT), f"{report.name}: {what} is {built}, not {told}"


def more_memory(report, others):
    others.end()


def raise_limit(report, others):
    torch.cuda.set_per_process_memory_fraction(1.0)


CURES = {
    "fragmentation": ("expandable segments", "expandable_segments:True", None),
    "limit": ("a higher limit", "expandable_segments:False", raise_limit),
    "other_processes": ("the others ended", "expandable_segments:False", more_memory),
    "too_much": ("a larger GPU", "expandable_segments:False", more_memory),
}


def main():
    table = pathlib.Path(__file__).with_name("expected.csv").read_text().splitlines()
    say = {True: "served", False: "out of memory"}
    with open(sys.argv[1], "w") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["file", "cause", "defaults", "expandable", "cure", "cured"])
        for report in map(Report, csv.DictReader(table)):
            is_made = report.name.startswith("made-")
            is_wanted = not is_made and report.cause in CURES and report.is_out_of_memory()
            if is_wanted and report.fits():
                out.writerow(row(report, say))


def row(report, say):
    cure, setting, act = CURES[report.cause]
    defaults = outcome(report, "expandable_segments:False")
    expandable = outcome(report, "expandable_segments:True")
    cured = outcome(report, setting, act)
    return [report.name, report.cause, say[defaults], say[expandable], cure, say[cured]]


main()
