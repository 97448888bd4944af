"""Builds the wheel: maturin packs the two programs, and before it cargo builds the two shared libraries.

maturin packs one kind of thing in one wheel; the libraries are put beside the Python files, where they are data.
The profile is cargo's `release`, or what GMLAKE_PROFILE names.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import maturin

ROOT = Path(__file__).resolve().parents[2]
PROFILE = os.environ.get("GMLAKE_PROFILE", "release")

get_requires_for_build_wheel = maturin.get_requires_for_build_wheel
get_requires_for_build_sdist = maturin.get_requires_for_build_sdist
build_sdist = maturin.build_sdist
prepare_metadata_for_build_wheel = maturin.prepare_metadata_for_build_wheel


LIBRARIES = {
    "gmlake_torch": "the allocators inside PyTorch",
    "gmlake_gpu": "the virtual GPU of predictions",
}


def build_libraries():
    """Builds the libraries and puts them into the package."""
    examples = [word for name in LIBRARIES for word in ("--example", name)]
    messages = subprocess.run(
        ["cargo", "build", "--profile", PROFILE, *examples, "--message-format=json-render-diagnostics"],
        cwd=ROOT, check=True, stdout=subprocess.PIPE,
    ).stdout.splitlines()
    files = [name for line in messages for name in json.loads(line).get("filenames", [])]
    for name in LIBRARIES:
        built = [file for file in files if file.endswith(f"lib{name}.so")]
        library = ROOT / "python" / "gmlake" / f"lib{name}.so"
        shutil.copyfile(built[-1], library)
        if shutil.which("strip"):
            # Line numbers are two thirds of it, and whoever needs them builds it without this.
            subprocess.run(["strip", "--strip-debug", str(library)], check=True)


def build_wheel(directory, config_settings=None, metadata_directory=None):
    build_libraries()
    settings = {"build-args": f"--profile {PROFILE}", **(config_settings or {})}
    return maturin.build_wheel(directory, settings, metadata_directory)
