"""Tries the guard: how many injected regressions it finds, and how often it gives a false alarm.

usage: regressions.py [--count 100] [--share 1.01] [--seconds N] [--events early]

A regression is a line that is put in at a random place of `train.py` and keeps a tensor of that
share (in percent) of the peak. It is found if the exit code is 1 and the guard names that very line
first. A repetition runs `train.py` as it is; it is a false alarm if the exit code is not 0. The two
alternate, until `count` of each are done or the time is over. Exit code 1 if any was wrong.
"""

import argparse
import ast
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = Path(__file__).with_name("train.py")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--share", type=float, default=1.01)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--events", default="early")
    given = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run(folder, SCRIPT.read_text(), given.events, "--update")
        live = json.loads(Path(folder, "memory.json").read_text())["ranks"][0]["live_peak_bytes"]
        done = found = false_alarms = 0
        while done < given.count and time.monotonic() - begin < given.seconds:
            found += is_found(folder, given, int(live * given.share / 100) + 1, random.Random(done))
            false_alarms += run(folder, SCRIPT.read_text(), given.events).returncode != 0
            done += 1
            print(f"\r{found} of {done} found, {false_alarms} false alarms", end="", flush=True)
    seconds = (time.monotonic() - begin) / (2 * done + 1)
    print(f"\nregressions of {given.share} %: {found} of {done} found; {false_alarms} false alarms in {done} "
          f"repetitions; {seconds:.1f} s a run")
    sys.exit(found < done or false_alarms > 0)


def is_found(folder, given, size, chance):
    """Whether the guard finds a line that keeps this many bytes."""
    text, name = regression(SCRIPT.read_text(), size, chance)
    done = run(folder, text, given.events)
    is_right = done.returncode == 1 and done.stdout.startswith(f"{name} made it grow")
    if not is_right:
        print(f"\n{name}, {size} bytes: exit code {done.returncode}\n{done.stdout}{done.stderr}", file=sys.stderr)
    return is_right


def regression(text, size, chance):
    """The script with a line more at a random place, and that line's name."""
    places = [(statement, function.name) for function in ast.walk(ast.parse(text))
              if isinstance(function, ast.FunctionDef) for statement in function.body]
    place, function = chance.choice(places)
    lines = text.splitlines()
    line = f"KEPT[0] = None; KEPT[0] = torch.empty({size}, dtype=torch.uint8, device='cuda')"
    lines.insert(place.lineno - 1, " " * place.col_offset + line)
    return "\n".join(lines), f"train.py:{place.lineno} {function}"


def run(folder, text, events, *options):
    """The guard on a script."""
    Path(folder, "train.py").write_text(text)
    command = [sys.executable, "-m", "gmlake", "guard", "--baseline", "memory.json", "--events", events]
    return subprocess.run([*command, *options, "train.py"], cwd=folder, capture_output=True, text=True)


if __name__ == "__main__":
    main()
