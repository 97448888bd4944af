"""The tree by which `predict` chooses what a convolution's workspace is made of, from what was measured.

usage: convolution_tree.py MEASURED.csv... > crates/virtual-gpu/src/workspace/convolution_tree.csv
       convolution_tree.py --check JUDGES.csv... -- MEASURED.csv...

MEASURED.csv are tables of `python -m gmlake measure` (of `drawn_convolutions.py`) and of `convolutions.py`. cuDNN's answer
is nearly always a sum of few things: copies of tensors, and partial results. Which, a decision tree of scikit-learn says.
`--check` grows the tree on MEASURED and judges it on JUDGES. Needs numpy and scikit-learn.
"""

import csv
import sys
from math import prod

import numpy
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.tree import DecisionTreeClassifier

# Sums of which the answer is one: tensors that are copied (`x` input, `w` weight, `y` output; capitals: with channels as they
# are, not filled up; all: those that are not as the tensor cores want them), and partial results of a weight's gradient (names
# of `Parts` in choice.rs).
COPIES = ["", "all", "x", "w", "xw", "y", "xy", "wy", "xwy", "X", "W", "XW", "Y", "XY", "WY", "XWY"]
PARTS = ["", "tile", "132", "wide", "264", "streamed", "images", "depthwise"]
TILES = {"132": (128, 128, 132), "wide": (64, 256, 132), "264": (64, 128, 264)}
FEATURES = ["kind", "channels_last", "dimensions", "batch", "outside", "inside", "groups", "pixels_in", "pixels_out", "taps",
            "plain", "aligned_in", "aligned_out", "input", "output", "weight", "work", "special"]
DIRECTIONS = ["forward", "data", "weight"]
NEAR = 1 << 19  # bytes that do not count
LEAF = 20  # convolutions of a leaf at least
KNOWN = 0.5  # what a layer of a known model weighs, which is there in ten batches


def read(path):
    """The convolutions of a table, each with its bytes."""
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            if "model" in row:
                yield from known(row)
            elif row["kind"] == "convolution":
                found = dict(pair.split("=") for pair in row["arguments"].split(" "))
                yield convolution(found, found["direction"], found["type"], int(found["channels_last"]), int(row["bytes"]), 1)


def known(row):
    """What `convolutions.py` measured of a layer, in its three directions."""
    lists = {name: sizes(row[name]) for name in ("input", "weight", "stride", "padding", "dilation")}
    taps = lists["weight"][2:]
    out = [(side + 2 * pad - step * (tap - 1) - 1) // stride + 1 for side, pad, step, tap, stride
           in zip(lists["input"][2:], lists["padding"], lists["dilation"], taps, lists["stride"])]
    row = {**row, "output": "x".join(map(str, [lists["input"][0], lists["weight"][0], *out]))}
    for direction, cell in zip(DIRECTIONS, ("forward", "data", "weights")):
        if row[cell]:
            yield convolution(row, direction, row["kind"], int(row["channels_last"]), int(row[cell]), KNOWN)


def sizes(text):
    return [int(size) for size in text.split("x")]


def convolution(row, direction, kind, channels_last, measured, weight):
    """Features, values of all sums, and what was measured."""
    x, w, y = (sizes(row[name]) for name in ("input", "weight", "output"))
    plain = set(sizes(row["stride"])) == {1} and set(sizes(row["padding"])) == {0}
    element, groups = 4 if kind == "float32" else 2, x[1] // w[1]
    taps, pixels_in, pixels_out = prod(w[2:]), prod(x[2:]), prod(y[2:])
    features = [["float32", "bfloat16", "float16"].index(kind), channels_last and x[1] > 1,
                len(w) - 2 if max(w[2], x[2]) > 1 else 1, x[0], w[0], w[1], groups, pixels_in, pixels_out, taps, plain,
                aligned(w[1]), aligned(w[0] // groups), prod(x) * element, prod(y) * element, prod(w) * element,
                x[0] * pixels_out * prod(w), 1 if taps == 1 and plain and groups == 1 else 2 * (1 < groups == x[1])]
    turned = not (channels_last and x[1] > 1)
    return {"direction": direction, "features": features, "values": values(x, w, y, element, groups, direction, turned),
            "measured": measured, "counts": weight}


def aligned(channels):
    return min(16, channels & -channels)


def values(x, w, y, element, groups, direction, turned):
    """Bytes of each sum, the parts outermost."""
    fill = 16 // element
    inner, outer = ((size + fill - 1) // fill * fill for size in (w[1], w[0] // groups))
    taps, each = prod(w[2:]), prod(w)
    of = {"x": x[0] * groups * inner * prod(x[2:]), "w": groups * outer * inner * taps,
          "y": y[0] * groups * outer * prod(y[2:]), "X": prod(x), "W": each, "Y": prod(y)}
    odd_inner, odd_outer = inner != w[1], outer != w[0] // groups
    moved = [(turned or odd_inner, "x"), (odd_inner or odd_outer or turned and taps > 1, "w"), (turned or odd_outer, "y")]
    everything = "".join(name for is_moved, name in moved if is_moved)
    letters = [everything if names == "all" else names for names in COPIES]
    copies = [sum(of[name] for name in names) * element + 16 * bool(names) for names in letters]
    if direction != "weight":
        return copies
    parts = {"": 0, "streamed": 132 * 128 * 128 * 4, "images": x[0] * each * 4,
             "depthwise": x[0] * -(-x[1] // 32) * 32 * taps * 32}
    tiles_of = {**TILES, "tile": (64, 64, 132) if element == 2 else (128, 256, 66)}
    for name, (rows, columns, at_once) in tiles_of.items():
        tiles = groups * -(-(w[0] // groups) // rows) * -(-w[1] * taps // columns)
        parts[name] = (at_once // tiles if at_once // tiles > 1 else 0) * each * 4
    return [parts[name] + bytes for name in PARTS for bytes in copies]


def label(one):
    """The first sum that is near, or else the nearest."""
    errors = [abs(value - one["measured"]) for value in one["values"]]
    near = max(NEAR, one["measured"] // 500)
    return next((at for at, error in enumerate(errors) if error <= near), errors.index(min(errors)))


def arrays(some):
    weights = [one["counts"] * (1 if max(one["values"]) > 2 * NEAR else 0.05) for one in some]
    features = numpy.array([one["features"] for one in some], dtype=float)
    return features, numpy.array([label(one) for one in some]), numpy.array(weights)


def grown(some):
    """The tree of one direction, and by how much it errs more often on others than on those it has seen."""
    features, labels, weights = arrays(some)
    tree = DecisionTreeClassifier(min_samples_leaf=LEAF, random_state=0)
    others = cross_val_predict(tree, features, labels, cv=KFold(5), params={"sample_weight": weights})
    tree.fit(features, labels, sample_weight=weights)
    off = [numpy.mean([is_off(one, at) != 0 for one, at in zip(some, of)]) for of in (others, tree.predict(features))]
    return tree, off[0] / off[1]


def is_off(one, at):
    """-1: it takes less, 1: more."""
    error = one["measured"] - one["values"][at]
    return 0 if abs(error) <= NEAR else -1 if error < 0 else 1


def lines(some):
    """The tree of one direction in preorder: questions, each with the lines until the other branch, and answers."""
    tree, honest = grown(some)
    nodes, features = tree.tree_, arrays(some)[0]
    names = tree.classes_[numpy.argmax(nodes.value[:, 0], axis=1)]
    at_leaf = {}
    for one, leaf in zip(some, tree.apply(features)):
        at_leaf.setdefault(leaf, []).append(one)

    def below(node):
        left, right = nodes.children_left[node], nodes.children_right[node]
        if left < 0:
            return names[node], at_leaf[node], None
        first, second = below(left), below(right)
        if first[2] is None and second[2] is None and first[0] == second[0]:
            return first[0], first[1] + second[1], None
        return None, None, (FEATURES[nodes.feature[node]], int(nodes.threshold[node] // 1), first, second)

    def written(node):
        name, members, question = node
        if question is None:
            off = [sum(is_off(one, name) == way for one in members) for way in (-1, 1)]
            shares = [min(50, round(100 * honest * (count + 0.5) / (len(members) + 1))) for count in off]
            return [["", "", "", COPIES[name % len(COPIES)], PARTS[name // len(COPIES)], *shares]]
        feature, most, first, second = question
        one, other = written(first), written(second)
        return [[feature, most, len(one) + 1, "", "", "", ""], *one, *other]

    return written(below(0))


def check(judges, measured):
    """How many of the judges are within 2 MiB, by direction, and what all errors are in comparison."""
    for direction in DIRECTIONS:
        tree, _ = grown([one for one in measured if one["direction"] == direction])
        some = [one for one in judges if one["direction"] == direction]
        errors = [abs(one["values"][at] - one["measured"]) for one, at in zip(some, tree.predict(arrays(some)[0]))]
        total = sum(one["measured"] for one in some)
        print(f"{direction}: {len(some)}, within 2 MiB {numpy.mean([error <= 4 * NEAR for error in errors]):.1%}, "
              f"errors {sum(errors) / total:.2f} of all bytes")


def main(arguments):
    def of(paths):
        return [one for path in paths for one in read(path)]

    if arguments[:1] == ["--check"]:
        middle = arguments.index("--")
        return check(of(arguments[1:middle]), of(arguments[middle + 1:]))
    measured, writer = of(arguments), csv.writer(sys.stdout, lineterminator="\n")
    print("# Which sum cuDNN 9.19 takes on an H200: in preorder, with how many of a hundred take less and more.")
    print("# Measured by examples/predict/drawn_convolutions.py and convolutions.py, written by convolution_tree.py.")
    writer.writerow(["feature", "most", "other", "copies", "parts", "less", "more"])
    forward, data, weight = (lines([one for one in measured if one["direction"] == direction]) for direction in DIRECTIONS)
    writer.writerow(["direction", 0, len(forward) + 1, "", "", "", ""])
    writer.writerows(forward)
    writer.writerow(["direction", 1, len(data) + 1, "", "", "", ""])
    writer.writerows(data + weight)


if __name__ == "__main__":
    main(sys.argv[1:])
