"""Writes snapshot.4.pickle as other programs write it, into variants/."""
import base64
import collections
import json
import os
import pickle
import zipfile

here = os.path.dirname(os.path.abspath(__file__))
out = os.path.join(here, "variants")
os.makedirs(out, exist_ok=True)
with open(os.path.join(here, "snapshot.4.pickle"), "rb") as file:
    raw = file.read()
with open(os.path.join(here, "snapshot.json"), "rb") as file:
    text = file.read()


def write(name, content):
    with open(os.path.join(out, name), "wb") as file:
        file.write(content)


def changed(change):
    """The snapshot with each entry, segment and block handed to a function."""
    snapshot = pickle.loads(raw)
    for trace in snapshot["device_traces"]:
        for entry in trace:
            change(entry)
    for segment in snapshot["segments"]:
        for part in [segment, *segment["blocks"]]:
            change(part)
    return pickle.dumps(snapshot, protocol=4)


def addresses(convert):
    def change(part):
        for key in ("addr", "address"):
            if key in part:
                part[key] = convert(part[key])
    return change


def floats(part):
    for key in ("addr", "size", "time_us"):
        if key in part:
            part[key] = float(part[key])


padded = raw + b"\0" * (3 - len(raw) % 3)
page = json.dumps([{"name": "snapshot.pickle", "base64": base64.b64encode(padded).decode()}])
write("page.html", b"<!DOCTYPE html>\n<html><script>const local_files = " + page.encode() + b"</script>")
write("base64.txt", base64.encodebytes(raw))
for name, method in (("stored.zip", zipfile.ZIP_STORED), ("deflated.zip", zipfile.ZIP_DEFLATED)):
    with zipfile.ZipFile(os.path.join(out, name), "w", method) as archive:
        for member, content in (("archive/data.pkl", raw), ("archive/version", b"3\n")):
            archive.writestr(zipfile.ZipInfo(member), content, method)
write("mark.json", b"\xef\xbb\xbf" + text)
write("twice.pickle", raw + raw)
write("floats.pickle", changed(floats))
write("hex.pickle", changed(addresses(hex)))
snapshot = pickle.loads(raw)
for name, value in (
    ("ordered.pickle", collections.OrderedDict(snapshot)),
    ("default.pickle", collections.defaultdict(list, snapshot)),
    ("tuples.pickle", {**snapshot, "device_traces": tuple(map(tuple, snapshot["device_traces"]))}),
    ("wrapped.pickle", {"step": 3, "snapshot": snapshot}),
):
    write(name, pickle.dumps(value, protocol=4))
write("ranks.pickle", pickle.dumps([snapshot, snapshot], protocol=4))
write("stats.pickle", pickle.dumps({"allocated_bytes.all.peak": 1 << 30}, protocol=4))


def numbers(convert):
    """Every whole number but those of pairs as another type."""
    def change(part):
        for key, value in part.items():
            if isinstance(value, int) and not isinstance(value, bool):
                part[key] = convert(value)
    return change


# With numpy, whose numbers pickle as calls of its functions.
try:
    import numpy
except ImportError:
    print("numpy is missing: its variants stay as they are")
else:
    def signed(value):
        return numpy.int64(value) if value < 1 << 63 else numpy.uint64(value)

    def fractional(part):
        for key in ("addr", "size", "time_us"):
            if key in part:
                part[key] = numpy.float64(part[key])

    write("numpy.pickle", changed(numbers(signed)))
    snapshot = pickle.loads(changed(numbers(numpy.uint64)))
    # As numpy 1 names it.
    write("numpy1.pickle", pickle.dumps(snapshot, protocol=2).replace(b"numpy._core.", b"numpy.core."))
    write("numpy-floats.pickle", changed(fractional))
