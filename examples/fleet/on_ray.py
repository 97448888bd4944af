"""A fleet on Ray, as a program.

    python on_ray.py SNAPSHOTS --out RESULTS                                  # here, or on the cluster of RAY_ADDRESS
    ray job submit --working-dir . -- python on_ray.py SNAPSHOTS --out RESULTS
"""

import argparse
import sys

import gmlake.fleet


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", metavar="SNAPSHOTS", help="files, folders, patterns, s3://bucket/jobs/")
    parser.add_argument("--out", required=True, metavar="RESULTS", help="a folder that all machines share")
    parser.add_argument("--shards", type=int, help="tasks [default: four for each CPU of the cluster]")
    parser.add_argument("--allocators", type=lambda text: text.split(","), help="such as caching,expandable,lake")
    given = parser.parse_args()
    try:
        result = gmlake.fleet.run(given.inputs, given.out, shards=given.shards, allocators=given.allocators)
    except gmlake.fleet.Problem as problem:
        sys.exit(f"gmlake: {problem}")
    for shard, reason in result.failed.items():
        print(f"gmlake: shard {shard}: {reason}", file=sys.stderr)
    print(f"{result.ranks().num_rows} ranks, {result.runs().num_rows} runs, {result.errors().num_rows} errors: {result.path}")
    sys.exit(1 if result.failed else 0)


if __name__ == "__main__":
    main()
