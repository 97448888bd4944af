"""A wheel, checked: auditwheel finds it fit for manylinux_2_28, its files are those of the package, and it is small.

    python3 packaging/check_wheel.py WHEEL ARCHITECTURE
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

FILES = ("gmlake/libgmlake_torch.so", "gmlake/libgmlake_gpu.so", "scripts/gmlake-sim", "scripts/gmlake-replay")
MOST_BYTES = 20 << 20
# Bits of an ELF header that name the machine.
MACHINES = {"x86_64": 62, "aarch64": 183}


def without_mounts(wheel, folder):
    """The wheel without the full mounts: they need PyTorch's libraries, which no policy knows (packaging/mounts checks them)."""
    plain = Path(folder, Path(wheel).name)
    with zipfile.ZipFile(wheel) as packed, zipfile.ZipFile(plain, "w", zipfile.ZIP_DEFLATED) as out:
        for entry in packed.infolist():
            if not (entry.filename.startswith("gmlake/mount/") and entry.filename.endswith(".so")):
                out.writestr(entry, packed.read(entry))
    return str(plain)


def main(wheel, architecture):
    with tempfile.TemporaryDirectory() as folder:
        plain = without_mounts(wheel, folder)
        said = subprocess.run(["auditwheel", "show", plain], check=True, capture_output=True, text=True).stdout
    fits = f"manylinux_2_28_{architecture}"
    assert fits in said or older(said), said
    packed = zipfile.ZipFile(wheel)
    assert wheel.endswith(f"-py3-none-{fits}.whl"), wheel
    for file in FILES:
        name = next((name for name in packed.namelist() if name.endswith(file)), None)
        assert name, f"{file} is not in {wheel}"
        machine = int.from_bytes(packed.read(name)[18:20], "little")
        assert machine == MACHINES[architecture], f"{name} is of machine {machine}"
    size = sum(entry.compress_size for entry in packed.infolist())
    assert size <= MOST_BYTES, f"{size} bytes"
    print(f"{wheel.rsplit('/', 1)[-1]}: fit for {fits}, {size / 2**20:.1f} MiB")


def older(said):
    """Whether it runs on systems that are older still."""
    return any(f"manylinux_2_{minor}_" in said for minor in range(5, 28))


if __name__ == "__main__":
    main(*sys.argv[1:])
