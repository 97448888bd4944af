"""Ranks of a job, or recordings of many jobs, made from one recording: other times, other addresses, and on request
other sizes.

    python examples/fleet/copies.py RECORDING OUT --ranks 2000                    one job, ranks that ask for the same
    python examples/fleet/copies.py RECORDING OUT --ranks 2000 --differ           ... each for somewhat more than the last
    python examples/fleet/copies.py RECORDING OUT --jobs 500 --ranks 20           many jobs

RECORDING is a snapshot (also .xz). Each copy is a pickle of its own: what PyTorch writes for another rank, whose clock
began at another moment and whose driver gave other addresses. Reads with pickle: only your own recordings, please.
"""

import argparse
import lzma
import pickle
from pathlib import Path

HUGE = 32 << 20


def shifted(entry, by, microseconds, more):
    """An entry at another address and time; `more` bytes are added to what was asked for, within its block."""
    changed = dict(entry)
    for name in ("addr", "address"):
        if name in changed:
            changed[name] += by
    if "time_us" in changed:
        changed["time_us"] += microseconds
    if more and changed.get("action") in ("alloc", "free_requested", "free_completed"):
        size = changed["size"]
        changed["size"] = size + min(more, -size % 512) if size > 512 else size
    return changed


def copy(snapshot, number, differ):
    """The snapshot as rank `number` would have written it."""
    by, microseconds, more = number * HUGE, number * 1_234_567, number if differ else 0
    traces = [[shifted(entry, by, microseconds, more) for entry in trace] for trace in snapshot["device_traces"]]
    segments = []
    for segment in snapshot["segments"]:
        moved = shifted(segment, by, 0, 0)
        moved["blocks"] = [shifted(block, by, 0, 0) for block in segment["blocks"]]
        segments.append(moved)
    notes = [shifted(note, 0, microseconds, 0) for note in snapshot.get("external_annotations", [])]
    return {**snapshot, "device_traces": traces, "segments": segments, "external_annotations": notes}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--entries", type=int, help="take only the first N entries")
    parser.add_argument("--zst", action="store_true", help="compress each copy (needs the package zstandard)")
    parser.add_argument("--differ", action="store_true", help="each rank asks for somewhat other sizes")
    given = parser.parse_args()
    if given.zst:
        global zstandard
        import zstandard
    opener = lzma.open if given.recording.suffix == ".xz" else open
    with opener(given.recording) as file:
        snapshot = pickle.load(file)
    if given.entries:
        snapshot["device_traces"] = [trace[: given.entries] for trace in snapshot["device_traces"]]
        snapshot["segments"] = []
    for job in range(given.jobs):
        folder = given.out / f"job{job:04}"
        folder.mkdir(parents=True, exist_ok=True)
        for rank in range(given.ranks):
            number = job * given.ranks + rank
            content = pickle.dumps(copy(snapshot, number, given.differ), protocol=4)
            if given.zst:
                content = zstandard.compress(content)
            (folder / f"rank{rank:05}.pickle{'.zst' if given.zst else ''}").write_bytes(content)


if __name__ == "__main__":
    main()
