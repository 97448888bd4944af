"""Builds the wheel: maturin packs the two programs, and before it cargo builds the library that PyTorch loads.

maturin packs one kind of thing in one wheel; the shared library is put beside the Python files, where it is data.
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


def build_library():
    """Builds libgmlake_torch.so and puts it into the package."""
    command = ["cargo", "build", "--profile", PROFILE, "--example", "gmlake_torch"]
    messages = subprocess.run(
        [*command, "--message-format=json-render-diagnostics"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    ).stdout.splitlines()
    files = [name for line in messages for name in json.loads(line).get("filenames", [])]
    built = [name for name in files if name.endswith("libgmlake_torch.so")]
    library = ROOT / "python" / "gmlake" / "libgmlake_torch.so"
    shutil.copyfile(built[-1], library)
    if shutil.which("strip"):
        # Line numbers are two thirds of it, and whoever needs them builds it without this.
        subprocess.run(["strip", "--strip-debug", str(library)], check=True)


def build_wheel(directory, config_settings=None, metadata_directory=None):
    build_library()
    settings = {"build-args": f"--profile {PROFILE}", **(config_settings or {})}
    return maturin.build_wheel(directory, settings, metadata_directory)
