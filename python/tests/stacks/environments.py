"""Environments: one that most stacks share, and one for each that does not get along with others, over one PyTorch.

    base: PyTorch, Triton and what they require, installed once, or the site-packages that GMLAKE_STACKS_TORCH names
    nvidia: empty packages under the names and versions of NVIDIA's that PyTorch requires, so that pip does not
            download gigabytes that the virtual GPU stands in for
"""

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

LIMIT = 600  # seconds, of an installation
PYTORCH = {"torch": "2.11.0", "triton": "3.6.0", "torchvision": "0.26.0", "torchaudio": "2.11.0"}
REQUIRED = ["filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec", "numpy", "setuptools<82"]


class Environments:
    """The environments in a folder, made when they are first asked for."""

    def __init__(self, home):
        self._home, self._base, self._problem = home, None, None

    def python(self, stack):
        """The Python in which a stack is installed, and what went wrong in a line."""
        if self._base is None:
            self._base, self._problem = base(self._home)
        if self._problem:
            return None, self._problem
        folder = self._home / (stack.name if stack.alone else "shared")
        python = folder / "bin/python"
        if not python.exists():
            create(folder, [self._base, self._home / "nvidia"])
        (self._home / "constraints.txt").write_text("".join(f"{name}=={version}\n" for name, version in PYTORCH.items()))
        return python, pip(python, ["--constraint", str(self._home / "constraints.txt"), *stack.packages])


def base(home):
    """The site-packages with PyTorch in it, and what went wrong in a line."""
    named = os.environ.get("GMLAKE_STACKS_TORCH")
    found, problem = (Path(named), None) if named else installed(home / "base")
    if not problem:
        stand_ins(found, home / "nvidia")
    return found, problem


def installed(folder):
    """PyTorch in an environment of its own."""
    if not folder.exists():
        create(folder, [])
        python = folder / "bin/python"
        problem = pip(python, ["--no-deps", f"torch=={PYTORCH['torch']}", f"triton=={PYTORCH['triton']}"])
        problem = problem or pip(python, REQUIRED)
        if problem:
            return None, problem
    return site_packages(folder), None


def stand_ins(found, folder):
    """Empty packages for those of NVIDIA that the PyTorch in site-packages requires."""
    (torch,) = importlib.metadata.distributions(name="torch", path=[str(found)])
    for requirement in torch.requires or []:
        pinned = re.match(r"(nvidia[\w-]+|cuda-toolkit)(?:\[[\w,]+\])?==([\w.]+)", requirement)
        if pinned:
            name, version = pinned.groups()
            place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
            place.mkdir(parents=True, exist_ok=True)
            (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def create(folder, below):
    """An environment that also sees the packages in the folders below."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    (site_packages(folder) / "below.pth").write_text("".join(f"{each}\n" for each in below))


def site_packages(folder):
    return next(folder.glob("lib/python*/site-packages"))


def pip(python, arguments):
    """Installs; what went wrong, in a line."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return f"no end after {LIMIT} s"
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.strip().splitlines()
    return (lines[0] if lines else f"exit code {done.returncode}") if done.returncode else None
