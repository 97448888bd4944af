"""A long recording, made from a short one: the same steps again and again, at later times.

    python examples/fleet/long.py RECORDING OUT --entries 20000000

After each round the program frees what it still holds and empties the cache, so that the next round begins as the first
did and `gmlake-sim verify OUT` agrees with every decision. OUT is written as Python's pickler writes it (protocol 4),
round by round: 50 bytes an entry, in little memory. Reads with pickle: only your own recordings, please.
"""

import argparse
import lzma
import pickle
import struct
from pathlib import Path


class Writer:
    """Opcodes of a pickle. Strings are written once and fetched by number afterwards; the places of times are kept."""

    def __init__(self):
        self.buffer, self.times, self.known, self.memoized = bytearray(), [], {}, 0

    def memoize(self):
        self.buffer += b"\x94"
        self.memoized += 1

    def text(self, text):
        if text in self.known:
            number = self.known[text]
            self.buffer += struct.pack("<cB", b"h", number) if number < 256 else struct.pack("<cI", b"j", number)
            return
        content = text.encode()
        self.buffer += struct.pack("<cB", b"\x8c", len(content)) + content
        self.known[text] = self.memoized
        self.memoize()

    def integer(self, value):
        for code, form, least, most in ((b"K", "<cB", 0, 255), (b"M", "<cH", 0, 65535), (b"J", "<ci", -(1 << 31), (1 << 31) - 1)):
            if least <= value <= most:
                self.buffer += struct.pack(form, code, value)
                return
        length = value.bit_length() // 8 + 1
        self.buffer += struct.pack("<cB", b"\x8a", length) + value.to_bytes(length, "little", signed=True)

    def value(self, value):
        if isinstance(value, str):
            self.text(value)
        elif isinstance(value, bool):
            self.buffer += b"\x88" if value else b"\x89"
        elif isinstance(value, float):
            self.buffer += struct.pack(">cd", b"G", value)
        elif isinstance(value, dict):
            self.table(value)
        else:
            self.integer(value)

    def table(self, table):
        self.buffer += b"}"
        self.memoize()
        self.buffer += b"("
        for key, value in table.items():
            self.value(key)
            if key == "time_us":
                self.times.append((len(self.buffer) + 2, value))
            self.value(value)
        self.buffer += b"u"

    def entries(self, entries):
        for start in range(0, len(entries), 1000):
            self.buffer += b"("
            for entry in entries[start : start + 1000]:
                self.table(entry)
            self.buffer += b"e"

    def taken(self):
        """What was written since the last call, and where its times are."""
        buffer, times = self.buffer, self.times
        self.buffer, self.times = bytearray(), []
        return buffer, times


def end_of_round(trace):
    """Entries that free all that `trace` leaves behind."""
    live, waiting, segments = {}, {}, {}
    for entry in trace:
        action, address = entry["action"], entry["addr"]
        if action == "alloc":
            live[address] = entry
        elif action == "free_requested":
            waiting[address] = live.pop(address, entry)
        elif action == "free_completed":
            waiting.pop(address, None)
        elif action == "segment_alloc":
            segments[address] = entry
        elif action == "segment_free":
            segments.pop(address, None)
        elif action in ("segment_map", "segment_unmap"):
            raise SystemExit("a recording with expandable segments cannot be repeated by this script")
    last = trace[-1]["time_us"]
    as_action = lambda entry, action: {**entry, "action": action, "time_us": last}
    for entry in live.values():
        yield as_action(entry, "free_requested")
        yield as_action(entry, "free_completed")
    for entry in waiting.values():
        yield as_action(entry, "free_completed")
    small = 2 << 20  # the size of a segment for small blocks; PyTorch empties that pool last
    for entry in sorted(segments.values(), key=lambda entry: (entry["size"] == small, entry["size"], entry["addr"])):
        yield as_action(entry, "segment_free")


def write(file, trace, settings, rounds):
    writer = Writer()
    writer.buffer += b"\x80\x04}"
    writer.memoize()
    writer.buffer += b"("
    writer.text("segments")
    writer.buffer += b"]"
    writer.memoize()
    writer.text("device_traces")
    for _ in range(2):
        writer.buffer += b"]"
        writer.memoize()
    writer.entries(trace)
    file.write(writer.taken()[0])
    writer.entries(trace)
    again, times = writer.taken()
    span = trace[-1]["time_us"] - trace[0]["time_us"] + 1000
    for number in range(1, rounds):
        for place, time in times:
            again[place : place + 7] = (time + number * span).to_bytes(7, "little")
        file.write(again)
    # The trace is an item of the list of traces, which is the value of `device_traces`.
    writer.buffer += b"a"
    writer.text("allocator_settings")
    writer.table(settings)
    writer.buffer += b"u."
    file.write(writer.taken()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--entries", type=int, default=20_000_000, help="the least number of entries")
    given = parser.parse_args()
    opener = lzma.open if given.recording.suffix == ".xz" else open
    with opener(given.recording) as file:
        snapshot = pickle.load(file)
    (trace,) = [trace for trace in snapshot["device_traces"] if trace]
    trace += list(end_of_round(trace))
    rounds = -(-given.entries // len(trace))
    with open(given.out, "wb") as file:
        write(file, trace, snapshot["allocator_settings"], rounds)
    print(f"{rounds * len(trace):,} entries, {given.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
