"""Do the pools of crates/core/src/beside.rs say at which CUDA graphs the driver took memory? `pools.py GRAPHS PROFILED`

GRAPHS is what follow/sitecustomize.py wrote, PROFILED how many of its first graphs had ended before the others began: vLLM
captures two sizes of each kind to estimate the rest.
"""

import json
import sys

CHUNK, KIB = 2 << 20, 1 << 10
# Bytes for each graph, for each node, and free at the first graph, as in beside.rs; the sixth pool is a mean.
POOLS = [(64 * KIB, 0, 8 * 64 * KIB), *((16 * KIB, 0, free * 16 * KIB) for free in (35, 78, 121)), (512, 512, CHUNK)]


def said(graphs, profiled):
    """Chunks that the five pools take at each graph; what ended is used again."""
    most = [0] * len(POOLS)
    for start, end in [(0, profiled), (profiled, len(graphs))]:
        nodes = 0
        for index in range(start, end):
            nodes += graphs[index]["nodes"]
            now = [-(-max(0, each * (index + 1 - start) + node * nodes - free) // CHUNK) for each, node, free in POOLS]
            yield sum(max(0, new - old) for new, old in zip(now, most, strict=True))
            most = [max(pair) for pair in zip(now, most, strict=True)]


def main():
    with open(sys.argv[1]) as file:
        graphs = [json.loads(line) for line in file]
    expected, taken = list(said(graphs, int(sys.argv[2]))), [graph["taken"] // CHUNK for graph in graphs]
    misplaced = sum(max(0, ours - theirs) for ours, theirs in zip(expected, taken, strict=True))
    print(f"{len(graphs)} graphs took {sum(taken)} chunks; the five pools say {sum(expected)}, {misplaced} of them elsewhere")
    # What the first graphs left behind serves as many others.
    rest = range(2 * int(sys.argv[2]), len(graphs))
    is_whole = [graph["nodes"] >= 100 for graph in graphs]
    for name, wanted in [("pieces", False), ("whole graphs", True)]:
        some = [index for index in rest if is_whole[index] == wanted]
        nodes = sum(graphs[index]["nodes"] for index in some)
        others = sum(taken[index] - expected[index] for index in some)
        print(f"{name}: {others} other chunks, {others * CHUNK / max(nodes, 1):.0f} bytes for each of {nodes:,} nodes")


if __name__ == "__main__":
    main()
