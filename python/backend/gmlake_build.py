"""Builds the wheel: maturin packs the two programs, and before it cargo builds the two shared libraries.

maturin packs one kind of thing in one wheel; the libraries are put next to the Python files, where they are data.
The profile is `source` of Cargo.toml, which compiles in half the time of `release`, or what GMLAKE_PROFILE names.
GMLAKE_TARGET builds for another machine, with zig as the linker, and GMLAKE_PLATFORM says for which glibc
(manylinux_2_28).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import maturin

ROOT = Path(__file__).resolve().parents[2]
PROFILE = os.environ.get("GMLAKE_PROFILE", "source")
TARGET = os.environ.get("GMLAKE_TARGET")
PLATFORM = os.environ.get("GMLAKE_PLATFORM")

get_requires_for_build_wheel = maturin.get_requires_for_build_wheel
get_requires_for_build_sdist = maturin.get_requires_for_build_sdist
build_sdist = maturin.build_sdist
prepare_metadata_for_build_wheel = maturin.prepare_metadata_for_build_wheel


FEATURES = ["--features", "remote"]
# The library of each package.
LIBRARIES = {
    "gmlake-torch": "gmlake_torch",  # the allocators inside PyTorch
    "gmlake-virtual-gpu": "gmlake_gpu",  # the virtual GPU of predictions
}


def cargo() -> list[str]:
    """The command that builds, for this machine or for another."""
    if TARGET is None:
        return ["cargo", "build"]
    glibc = "." + PLATFORM.removeprefix("manylinux_").replace("_", ".") if PLATFORM else ""
    return ["cargo", "zigbuild", "--target", TARGET + glibc]


def build_libraries() -> None:
    """Builds the libraries and puts them into the package.

    The programs are built with them, so that maturin finds them built and no dependency is compiled twice.
    """
    packages = [word for package in ("gmlake", *LIBRARIES) for word in ("-p", package)]
    messages = subprocess.run(
        [*cargo(), "--profile", PROFILE, *packages, *FEATURES, "--message-format=json-render-diagnostics"],
        cwd=ROOT, check=True, stdout=subprocess.PIPE,
    ).stdout.splitlines()
    files = [name for line in messages for name in json.loads(line).get("filenames", [])]
    for name in LIBRARIES.values():
        built = [file for file in files if file.endswith(f"lib{name}.so")]
        library = ROOT / "python" / "gmlake" / f"lib{name}.so"
        shutil.copyfile(built[-1], library)


def build_wheel(
    directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Builds the wheel into a folder, and returns its name: the entry that pip calls."""
    build_libraries()
    elsewhere = f" --target {TARGET} --zig --compatibility {PLATFORM}" if TARGET else ""
    settings = {"build-args": f"{' '.join(FEATURES)} --profile {PROFILE}{elsewhere}", **(config_settings or {})}
    return maturin.build_wheel(directory, settings, metadata_directory)
