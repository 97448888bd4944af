"""The stacks that people run, each by a program of a few lines: installed, predicted, and its answer looked at.

    python -m stacks [NAME...]      all of them, or these; `--table` prints the list for docs/predict.md

The packages of a stack are installed as a user would install them, but for PyTorch, which stays, and NVIDIA's packages,
which nothing here needs. What cannot be had is said in a line that begins with SKIPPED.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .environments import Environments
from .listed import all_stacks, table

LIMIT = 300  # seconds, of a prediction
NEAR = 0.25  # how far a peak may be from the one in the list: what stacks need is not pinned


def main(arguments):
    if arguments == ["--table"]:
        print(table(), end="")
        return 0
    stacks = all_stacks()
    names = {each.name for each in stacks}
    wrong = [name for name in arguments if name not in names]
    if wrong:
        print(f"unknown stack {wrong[0]!r}; there are {', '.join(sorted(names))}", file=sys.stderr)
        return 2
    begin, counts = time.monotonic(), {"ok": 0, "FAILED": 0, "SKIPPED": 0}
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as scratch:
        environments = Environments(Path(os.environ.get("GMLAKE_STACKS") or scratch).resolve())
        for each in stacks:
            if not arguments or each.name in arguments:
                counts[tried(each, environments)] += 1
    print(f"{counts['ok']} stacks run to the end, {counts['FAILED']} failed, {counts['SKIPPED']} were not tried, "
          f"in {time.monotonic() - begin:.0f} s", flush=True)
    return 1 if counts["FAILED"] or not counts["ok"] else 0


def tried(stack, environments):
    """Installs and predicts a stack, and says how that went: ok, FAILED or SKIPPED."""
    begin = time.monotonic()
    python, problem = environments.python(stack)
    if problem:
        print(f"SKIPPED: {stack.packages[0]} could not be installed: {stack.name} was NOT predicted ({problem})", flush=True)
        return "SKIPPED"
    installed = time.monotonic()
    rank, problem = predicted(stack, python)
    mib = round((held(rank) or 0) / 2**20)
    problem = problem or wrong(stack, rank, mib)
    took = f"{time.monotonic() - installed:.0f} s, {installed - begin:.0f} s to install"
    print(f"{'FAILED' if problem else 'ok'} {stack.name}, {stack.packages[0]}: {mib:,} MiB ({took})", *notes(rank), flush=True)
    if problem:
        print(problem, flush=True)
    return "FAILED" if problem else "ok"


def predicted(stack, python):
    """The first rank of the answer, and what went wrong in words."""
    with tempfile.TemporaryDirectory() as scratch:
        own = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": scratch, "TRITON_CACHE_DIR": f"{scratch}/triton", "HF_HUB_OFFLINE": "1"}
        own |= {"TORCHINDUCTOR_COMPILE_THREADS": "1", "HOME": scratch, "USER": "gmlake", "WANDB_MODE": "offline"}
        answer = Path(scratch, "answer.json")
        command = [str(python), "-m", "gmlake", "predict", "--events", "clock", "--json", str(answer), *stack.arguments]
        command += ["-m", "stacks.program", stack.name]
        try:
            done = subprocess.run(command, env=own, cwd=scratch, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return {}, f"no end after {LIMIT} s"
        rank = json.loads(answer.read_text())["result"]["ranks"][0] if answer.exists() else {}
        problem = None if done.returncode == 0 else f"exit code {done.returncode}\n{done.stderr[-4000:]}"
    return rank, problem


def held(rank):
    """Bytes that PyTorch reserves; of a server those of its weights and KV cache."""
    server = rank.get("server")
    return server["weights_bytes"] + server["kv_cache_bytes"] if server and server["starts"] else rank.get("reserved_peak_bytes")


def wrong(stack, rank, mib):
    """What is wrong with an answer; None if nothing is."""
    if "server" in rank:
        names = ("starts", "activation_peak_bytes", "kv_cache_tokens", "longest_context_tokens")
        if not all(rank["server"][name] for name in names):
            return f"an answer without numbers: {rank}"
    elif rank["error"] or not rank["requests"] or not rank["allocators"]:
        return f"an answer without numbers: {rank}"
    if abs(mib - stack.mib) > NEAR * stack.mib:
        return f"PyTorch holds {mib} MiB; {stack.mib} are expected"
    return None


def notes(rank):
    """What else the answer says, in words."""
    if rank.get("unwritten"):
        yield f"lacks {', '.join(rank['unwritten'])};"
    if rank.get("estimated_workspaces"):
        yield f"{sum(rank['estimated_workspaces'].values())} workspaces are estimates"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
