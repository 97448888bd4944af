"""Two GPUs: DDP, FSDP and copies between GPUs, on stock and on ours; the losses must be the same.

usage: distributed.py OUT SECONDS, with ALLOCATORS, and optionally ENGINES ("ddp fsdp2 copies fsdp1") and RECORD=on, for
snapshots of the stock runs: OUT/ENGINE.RANK.pickle
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OUT, LIMIT = Path(sys.argv[1]), float(sys.argv[2])
HERE = Path(__file__).parent
OURS = os.environ["ALLOCATORS"].split()
START = time.time()
results = []


def left():
    return LIMIT - (time.time() - START)


def run(engine, mode):
    if left() < 20:
        return dict(engine=engine, mode=mode, failed="no time left")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rank")
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29577"]
        ours = ["-m", "gmlake", "run", "--allocator", mode] if mode != "stock" else []
        command = [*torchrun, *ours, str(HERE / "rank.py"), engine, str(file)]
        if engine == "copies":
            command = [sys.executable, *ours, str(HERE / "rank.py"), engine, str(file)]
        environment = {name: value for name, value in os.environ.items() if name != "RECORD"}
        if mode == "stock" and os.environ.get("RECORD"):
            environment["RECORD"] = str(OUT)
        begin = time.time()
        try:
            timeout = min(left(), 70)
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
            errors = done.stderr
        except subprocess.TimeoutExpired as expired:
            errors = f"out of time: {expired}"
        parts = [json.loads(each.read_text()) for each in sorted(Path(folder).glob("rank.*"))]
        if len(parts) < (1 if engine == "copies" else 2):
            return dict(engine=engine, mode=mode, failed=errors[-3000:])
        return dict(engine=engine, mode=mode, seconds=round(time.time() - begin, 1), ranks=parts)


def verdict(result):
    if "failed" in result:
        return "FAILED: " + result["failed"][-1500:]
    stock = next((each for each in results if each["engine"] == result["engine"] and each["mode"] == "stock"), None)
    first = result["ranks"][0]
    text = f"{first['step_s'][-1]:.3f} s a step, reserved {first['reserved'] / 2**30:.2f} GiB"
    if stock is result or stock is None or "failed" in stock:
        return text
    pairs = list(zip(stock["ranks"][0]["losses"], first["losses"]))
    same = all(a == b for a, b in pairs)
    return text + (", losses as stock" if same else f", losses off by {max(abs(a - b) for a, b in pairs):.2g}")


for engine in os.environ.get("ENGINES", "ddp fsdp2 copies fsdp1").split():
    for mode in ["stock", OURS[0]]:
        result = run(engine, mode)
        results.append(result)
        print(f"{engine:7} {mode:10} {verdict(result)}", flush=True)
        (OUT / "distributed.json").write_text(json.dumps(results, indent=1))
lines = [f"| {each['engine']} | {each['mode']} | {verdict(each).splitlines()[-1][:200]} |" for each in results]
(OUT / "distributed.md").write_text("| engine | allocator | result |\n|---|---|---|\n" + "\n".join(lines) + "\n")
sys.exit(any("failed" in each for each in results))
