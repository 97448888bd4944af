"""Is `predict --serve` right? Predicts the start-up of vLLM, then starts it on real GPUs and reads its own log.

    python examples/serve/truth.py predict h100-80gb predicted.csv      # without a GPU
    python examples/serve/truth.py measure LOGS measured.csv            # on a machine with GPUs; one server a GPU at a time
    python examples/serve/truth.py compare predicted.csv measured.csv   # a table

The configurations are those of configurations.csv, `--only NAME,...` takes some. What is measured is read off the words that
vLLM prints, not by our own code.
"""

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

HERE = Path(__file__).parent
GIB = 1 << 30
FIELDS = ["name", "starts", "weights_gib", "kv_cache_gib", "tokens", "longest", "graphs_gib", "estimate_gib", "seconds", "host_gib"]
# Without nvcc; and what a start-up waits for at most.
SETTINGS = {"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_USE_DEEP_GEMM": "0"}
PATIENCE = 400  # seconds

# What vLLM 0.26 says, on each rank.
WORDS = {
    "weights_gib": r"Model loading took ([\d.]+) GiB",
    "kv_cache_gib": r"Available KV cache memory: ([\d.]+) GiB",
    "tokens": r"GPU KV cache size: ([\d,]+) tokens",
    "longest": r"estimated maximum model length is (\d+)",
    "graphs_gib": r"Graph capturing finished in \d+ secs, took (-?[\d.]+) GiB",
    "estimate_gib": r"Estimated CUDA graph memory: (-?[\d.]+) GiB",
}


def chosen(only):
    """Configurations, by name if some are named."""
    with open(HERE / "configurations.csv") as file:
        return [row for row in csv.DictReader(file) if not only or row["name"] in only]


def script(row, folder):
    """The start of a configuration, as words of a command line."""
    model = Path(folder) / row["model"]
    if not model.exists():
        subprocess.run([sys.executable, HERE / "model.py", row["model"], model], check=True)
    return [str(HERE / "start.py"), str(model), *row["options"].split()]


def predicted(card, row, folder):
    """What `predict --serve` says."""
    answer = Path(folder) / f"{row['name']}.json"
    command = [sys.executable, "-m", "gmlake", "predict", "--serve", "--gpu", card, "--gpus", row["gpus"], "--json", answer]
    subprocess.run([*command, *script(row, folder)], env={**os.environ, **SETTINGS}, stdin=subprocess.DEVNULL, check=False)
    result = json.loads(answer.read_text())["result"]
    server = result["ranks"][0]["server"]

    def gib(name):
        return round(server[name] / GIB, 2) if server[name] is not None else ""

    return {
        "name": row["name"], "starts": result["starts"], "weights_gib": gib("weights_bytes"), "kv_cache_gib": gib("kv_cache_bytes"),
        "tokens": server["kv_cache_tokens"], "longest": server["longest_context_tokens"] if not result["starts"] else "",
        "graphs_gib": gib("graphs_bytes"), "estimate_gib": gib("graphs_estimate_bytes"),
        "seconds": result["seconds"], "host_gib": round(result["host_memory_bytes"] / GIB, 2),
    }


def measured(gpus, row, folder, logs):
    """What vLLM says on real GPUs."""
    began = time.monotonic()
    log = Path(logs) / f"{row['name']}.log"
    with open(log, "w") as file:
        environment = {**os.environ, **SETTINGS, "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))}
        command = ["timeout", str(PATIENCE), sys.executable, *script(row, folder)]
        code = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file, check=False).returncode
    text = log.read_text()
    found = {name: re.search(words, text) for name, words in WORDS.items()}
    said = {name: match.group(1).replace(",", "") for name, match in found.items() if match}
    return {"name": row["name"], "starts": code == 0, "seconds": round(time.monotonic() - began, 1), **said}


def measure(rows, logs, count):
    """All configurations: those of one GPU side by side, one a GPU, then the others. Yields as they end."""
    Path(logs).mkdir(parents=True, exist_ok=True)
    free = Queue()
    for gpu in range(count):
        free.put(gpu)

    def on_one(row):
        gpu = free.get()
        try:
            return measured([gpu], row, folder, logs)
        finally:
            free.put(gpu)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(count) as pool:
        for name in {row["model"] for row in rows}:
            script({"model": name, "options": ""}, folder)
        yield from pool.map(on_one, [row for row in rows if int(row["gpus"]) == 1])
        for row in rows:
            if 1 < int(row["gpus"]) <= count:
                yield measured(range(int(row["gpus"])), row, folder, logs)


def write(path, results):
    """Writes a line as soon as it is known."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for result in results:
            writer.writerow(result)
            file.flush()
            print(result, flush=True)


def compare(before, after):
    """A table in Markdown of what was said and what was."""
    with open(before) as first, open(after) as second:
        said = {row["name"]: row for row in csv.DictReader(first)}
        rows = list(csv.DictReader(second))
    print("| configuration | starts | weights GiB | KV cache GiB | tokens | off by | graphs GiB | vLLM's own estimate |")
    print("|---|---|---|---|---|---:|---|---:|")
    for row in rows:
        was = said.get(row["name"])
        if was is None:
            continue
        both = [f"{was[name]} / {row[name]}" for name in ["starts", "weights_gib", "kv_cache_gib"]]
        name = "tokens" if row["tokens"] else "longest"
        off = f"{int(was[name]) / int(row[name]) - 1:+.2%}" if row[name] and was[name] else "-"
        graphs = f"{was['graphs_gib']} / {row['graphs_gib'] or '-'}"
        tokens = f"{was[name]} / {row[name]}" + (" longest" if name == "longest" else "")
        print(f"| `{row['name']}` | {' | '.join(both)} | {tokens} | {off} | {graphs} | {row['estimate_gib'] or '-'} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=["predict", "measure", "compare"])
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("--only", type=lambda names: names.split(","))
    parser.add_argument("--gpus", type=int, default=1, help="GPUs of this machine")
    given = parser.parse_args()
    rows = chosen(given.only)
    if given.verb == "predict":
        with tempfile.TemporaryDirectory() as folder:
            write(given.second, (predicted(given.first, row, folder) for row in rows))
    elif given.verb == "measure":
        write(given.second, measure(rows, given.first, given.gpus))
    else:
        compare(given.first, given.second)


if __name__ == "__main__":
    main()
