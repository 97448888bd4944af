"""`gmlake predict` on every version of PyTorch, and on every card: the operations of job.py run on each.

    python -m matrix [VERSION...]
    python -m matrix --some         the first version on a V100, and the last on the last card

Each version is installed into a folder of its own, without NVIDIA's packages, tried, and deleted; the folder that
GMLAKE_WHEELS names keeps them (2 GB each). A version that cannot be had is said in a line that begins with SKIPPED.
"""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gmlake.predict import library

JOB = Path(__file__).with_name("job.py")
VERSIONS = ["2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0"]
CARD = "H200"  # of all versions; every other card runs on the last of them,
VOLTA = "V100"  # but for these: CUDA 13 has no code for them, and the first of the versions is for CUDA 12
GIB_OF_A_RUN = 3  # of host memory, with the compiler's; 1.6 were measured
LIMIT = 300  # seconds, of a run and of an installation


def main(arguments):
    cards, versions = library.cards(library.find()), arguments or VERSIONS
    if arguments == ["--some"]:
        versions = [VERSIONS[0], VERSIONS[-1]]
        cards = [next(card for card in cards if card.startswith(VOLTA)), cards[-1]]
    begin, missing = time.monotonic(), []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as scratch, ThreadPoolExecutor(side_by_side()) as pool:
        kept = os.environ.get("GMLAKE_WHEELS")
        home = Path(kept or scratch)
        home.mkdir(parents=True, exist_ok=True)

        def version(number):
            """Whether the version passed on its cards, for each."""
            folder = home / f"torch-{number}"
            problem = installed(folder, number)
            if problem:
                missing.append(number)
                print(f"SKIPPED: PyTorch {number} could not be installed: predict was NOT tried with it ({problem})", flush=True)
                return []
            first = [tried(folder, CARD)] if CARD in cards else []
            if number != versions[-1]:
                first += [tried(folder, card) for card in cards if card.startswith(VOLTA) and number == versions[0]]
                if not kept:
                    shutil.rmtree(folder)
                return first
            others = [card for card in cards if card != CARD and not card.startswith(VOLTA)]
            return first + [pool.submit(tried, folder, card) for card in others]

        # The last one first: what follows it is most.
        found = [each for passed in pool.map(version, reversed(versions)) for each in passed]
        passed = [each if isinstance(each, bool) else each.result() for each in found]
    took = time.monotonic() - begin
    print(f"{sum(passed)} of {len(passed)} passed in {took:.0f} s: {len(versions) - len(missing)} of {len(versions)} versions, "
          f"{len(cards)} cards", flush=True)
    return 0 if all(passed) else 1


def side_by_side():
    """How many runs there may be at a time: one for each core, as far as there is memory."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) >> 20
    return max(1, min(os.cpu_count() or 1, free // GIB_OF_A_RUN))


def installed(folder, version):
    """Installs a wheel with the Triton that it requires, unless it is there; what went wrong, in a line."""
    if folder.exists():
        return None
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    problem = install(part, f"torch=={version}")
    if not problem:
        (wheel,) = importlib.metadata.distributions(name="torch", path=[str(part)])
        triton = next((text.split(";")[0] for text in wheel.requires if text.startswith("triton")), None)
        problem = triton and install(part, triton.strip())
    if not problem:
        part.rename(folder)
    return problem


def install(folder, requirement):
    """Installs one package into a folder, with uv where it is and with pip where it is not; what went wrong, in a line."""
    command = [sys.executable, "-m", "pip", "install", "--no-compile"]
    if shutil.which("uv"):
        command = ["uv", "pip", "install", "--no-cache", "--python", sys.executable]  # all versions would not fit a small disk
    command += ["--quiet", "--no-deps", "--upgrade", "--target", str(folder), requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return f"no end after {LIMIT} s"
    lines = done.stderr.strip().splitlines()
    return (lines[-1] if lines else f"exit code {done.returncode}") if done.returncode else None


def tried(folder, card):
    """Predicts the job on a card, and says how that went."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        own = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": scratch, "TRITON_CACHE_DIR": f"{scratch}/triton"}
        own["PYTHONPATH"] = os.pathsep.join([str(folder.resolve()), os.environ.get("PYTHONPATH", "")])
        own["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        answer = f"{scratch}/answer.json"
        command = [sys.executable, "-m", "gmlake", "predict", "--gpu", card, "--events", "clock", "--json", answer, str(JOB)]
        try:
            done = subprocess.run(command, env=own, cwd=scratch, capture_output=True, text=True, timeout=LIMIT)
            problem = wrong(done, answer, card)
        except subprocess.TimeoutExpired:
            problem = f"no end after {LIMIT} s"
    took = f"{time.monotonic() - begin:.0f} s"
    print(f"{'FAILED' if problem else 'ok'} {folder.name} on {card} ({took})", problem or "", flush=True)
    return not problem


def wrong(done, answer, card):
    """What is wrong with an answer, in words; None if nothing is."""
    if done.returncode != 0 or not os.path.exists(answer):
        return f"exit code {done.returncode}\n{done.stderr}"
    with open(answer) as file:
        found = json.load(file)["result"]
    (rank,) = found["ranks"]
    if found["gpu"] != card or rank["error"] or not rank["reserved_peak_bytes"]:
        return f"an answer without numbers: {rank}"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
