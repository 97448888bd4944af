"""The card's ledger on ten real jobs: training, inference, two GPUs, and one with another process beside it.

    python3 examples/card/ten.py predict FILE     # on the virtual GPU: the memory besides PyTorch, a line a rank
    python3 examples/card/ten.py run OUT [NAME ...]    # on two GPUs: OUT/ten.csv, and the table next to the predictions
    python3 examples/card/ten.py table            # the table of what is in this folder

Each job runs unchanged under `gmlake.record(card=0.5)`, which looks at the card twice a second. Of all its looks the
one with the smallest named share counts. Jobs of one GPU run in two lanes, one GPU each.
"""

import concurrent.futures
import csv
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PREDICTED, MEASURED = HERE / "ten-predicted.csv", HERE / "ten-measured.csv"
ALONE = {
    "gpt2-trainer": "examples/jobs/gpt2_trainer.py --layers 12 --batch 8 --length 512 --steps 4",
    "llama-8b-lora": "examples/jobs/lora.py --batch 4 --length 1024 --steps 3",
    "resnet50-workers": "examples/jobs/resnet50.py --batch 128 --steps 8",
    "whisper-accelerate": "examples/jobs/whisper.py --steps 4",
    "compiled-llama": "examples/jobs/compiled_llama.py --layers 4 --batch 4 --steps 5",
    "generate": "examples/card/inference.py generate",
    "graphs-of-llama": "examples/card/inference.py graphs --layers 8",
    "wav2vec2-beside-inference": "examples/jobs/wav2vec2.py --batch 8 --steps 6",
}
PAIRS = {
    "sharded-llama": "examples/jobs/sharded_llama.py --layers 8 --batch 4 --steps 4",
    "lora-sharded": "examples/jobs/lora_sharded.py --layers 8 --batch 4 --length 1024 --steps 4",
}
NEIGHBOUR = ["examples/card/inference.py", "hold"]
PATIENCE = 170  # seconds a job


def job(name, out):
    """Runs a job in this process and writes what its card held, after it and at the look that names least."""
    import torch
    import torch.distributed

    import gmlake

    rank, stem = int(os.environ.get("RANK", "0")), f"{out}/{name}.{os.environ.get('RANK', '0')}"
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    gmlake.watch()
    last, destroy = [], torch.distributed.destroy_process_group

    def look():
        torch.cuda.synchronize()
        last.append((gmlake.card(), torch.cuda.memory_reserved()))

    def look_and_destroy(*arguments):
        look()
        destroy(*arguments)

    torch.distributed.destroy_process_group = look_and_destroy
    sys.argv = words = (ALONE | PAIRS)[name].split()
    sys.path.insert(0, str(Path(words[0]).parent))
    with gmlake.record(f"{stem}.pickle", card=0.5):
        kept = runpy.run_path(words[0], run_name="__main__")
        last or look()
    assert kept
    if not name.endswith("beside-inference"):  # which is the picture of docs/card.md
        os.unlink(f"{stem}.pickle")
    card, reserved = last[0]
    with open(f"{stem}.pickle.card.jsonl") as file:
        looks = [json.loads(line) for line in file]
    own = next(process.bytes for process in card.processes if process.pid == os.getpid())
    Path(f"{stem}.txt").write_text(f"{card}\n")
    row = {
        "job": name, "rank": rank, "gpu": card.name, "used_bytes": card.used_bytes, "pytorch_bytes": reserved,
        "beside_bytes": own - reserved, "others_bytes": sum(process.bytes for process in card.processes) - own,
        "named_share": round(card.named_bytes / card.used_bytes, 5), "looks": len(looks),
        "least_named_share": round(min(look["named_bytes"] / look["used_bytes"] for look in looks), 5),
    }
    Path(f"{stem}.json").write_text(json.dumps(row))


def start(name, out, gpu):
    """Runs a job in a process of its own, or two, and says how it ended."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29511"] if name in PAIRS else []
    seen = {} if name in PAIRS else {"CUDA_VISIBLE_DEVICES": str(gpu)}
    environment = {**os.environ, **seen}
    neighbour = None
    if name.endswith("beside-inference"):
        neighbour = subprocess.Popen([sys.executable, *NEIGHBOUR], cwd=ROOT, env=environment, stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, text=True)
        while "ready" not in (neighbour.stdout.readline() or "ready"):
            pass
    command = [sys.executable, *launcher, __file__, "job", name, out]
    try:
        with open(f"{out}/{name}.log", "w") as log:
            code = subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=log, timeout=PATIENCE).returncode
    except subprocess.TimeoutExpired:
        code = f"longer than {PATIENCE} s"
    if neighbour:
        neighbour.communicate("")
    print(f"{name}: {'done' if code == 0 else f'FAILED ({code})'}", flush=True)


def run(out, chosen):
    """All jobs, or those that were chosen, and a line for each rank of each."""
    Path(out).mkdir(parents=True, exist_ok=True)
    out = os.path.abspath(out)
    alone = [name for name in ALONE if name in chosen]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for gpu in (0, 1):
            pool.submit(lambda gpu: [start(name, out, gpu) for name in alone[gpu::2]], gpu)
    for name in PAIRS:
        if name in chosen:
            start(name, out, None)
    rows = [json.loads(path.read_text()) for name in ALONE | PAIRS for path in sorted(Path(out).glob(f"{name}.*.json"))]
    write(Path(out, "ten.csv"), rows)
    table(rows)


def predict(path):
    """The memory besides PyTorch of every job, by `python -m gmlake predict`."""
    rows = []
    for name, line in (ALONE | PAIRS).items():
        ranks = ["--world", "2", "--ranks", "all"] if name in PAIRS else []
        command = [sys.executable, "-m", "gmlake", "predict", "--gpu", "h100-80gb", *ranks, "--json", "-", *line.split()]
        answer = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        found = json.loads(answer.stdout)["result"]
        for number, rank in enumerate(found.get("ranks", [found])):
            rows.append({
                "job": name, "rank": number,
                **{f"beside_{end}bytes": rank[f"beside_pytorch_bytes{low}"]
                   for end, low in [("", ""), ("low_", "_low"), ("high_", "_high")]},
            })
        write(Path(path), rows)


def write(path, rows):
    """Rows of one kind as CSV."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read(path):
    """Rows of a CSV."""
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def table(rows):
    """The table of docs/card.md."""
    foretold = {(row["job"], row["rank"]): int(row["beside_bytes"]) for row in read(PREDICTED)}
    print("| job | in use | PyTorch | others | named | least, of looks | besides PyTorch | predicted |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        job = f"`{row['job']}`" + (f", rank {row['rank']}" if row["job"] in PAIRS else "")
        used, held, others = (f"{int(row[key]) / 2**30:.2f} GiB" for key in ["used_bytes", "pytorch_bytes", "others_bytes"])
        shares = f"{float(row['named_share']):.2%} | {float(row['least_named_share']):.2%} of {row['looks']}"
        beside, before = int(row["beside_bytes"]) / 2**20, foretold[row["job"], str(row["rank"])] / 2**20
        print(f"| {job} | {used} | {held} | {others} | {shares} | {beside:,.0f} MiB | {before:,.0f} MiB |")


if __name__ == "__main__":
    what = sys.argv[1]
    if what == "job":
        job(*sys.argv[2:4])
    elif what == "run":
        run(sys.argv[2], sys.argv[3:] or [*ALONE, *PAIRS])
    elif what == "predict":
        predict(sys.argv[2])
    else:
        table(read(MEASURED))
