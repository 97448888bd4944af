"""What the installed package does without PyTorch and without a GPU. Plain Python: no test framework is needed.

A small stand-in for PyTorch shows what is asked of the real one.
"""

import ctypes
import importlib.util
import json
import os
import pickle
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import gmlake

HERE = Path(gmlake.__file__).parent


def raises(kind, text, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except kind as error:
        assert text in str(error), f"{text!r} is not in {str(error)!r}"
    else:
        raise AssertionError(f"no {kind.__name__}")


def in_a_process(code, **environment):
    """Runs Python code in a process of its own, since an allocator is chosen once."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_installed_and_not_the_sources():
    assert "site-packages" in str(HERE), HERE
    assert (HERE / "libgmlake_torch.so").exists() and (HERE / "libgmlake_gpu.so").exists(), HERE


def test_a_wrong_name_or_option_is_said():
    raises(ValueError, 'there is no allocator "magic"; there are: ', gmlake.enable, "magic")
    raises(ValueError, 'has no option "magic"; it has: ', gmlake.enable, "gmlake", magic=1)
    raises(ValueError, "must be a size", gmlake.enable, "gmlake", fragment_limit="much")
    assert not gmlake.enabled()


def test_without_pytorch_enable_says_so():
    if importlib.util.find_spec("torch"):
        return
    print(in_a_process("import gmlake\ntry: gmlake.enable()\nexcept gmlake.NotEnabled as e: assert 'not installed' in str(e)"))


def test_predict_without_pytorch_says_so():
    if importlib.util.find_spec("torch"):
        return
    predict = [sys.executable, "-m", "gmlake", "predict", __file__]
    done = subprocess.run(predict, capture_output=True, text=True)
    assert done.returncode == 2 and "PyTorch is not installed" in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_without_a_gpu_there_is_a_sentence():
    problem = gmlake.check()
    print("   ", problem or "there is a GPU")
    assert problem == "" or problem.startswith("gmlake: ")
    assert gmlake.stats() == [] or problem == ""


class Inner:
    """Notes the hooks that are set."""

    def __init__(self):
        self.hooks = {}

    def __getattr__(self, name):
        if not name.startswith("set_"):
            raise AttributeError(name)
        return lambda address: self.hooks.__setitem__(name, address)


def stand_in():
    """A module with what enable touches of PyTorch."""
    torch = types.ModuleType("torch")
    torch.__version__ = "2.8.0"  # none of those for which there is a full mount
    torch._C = types.SimpleNamespace(_cuda_customAllocator=None)
    seen = {}

    class Pluggable:
        def __init__(self, *arguments):
            seen["arguments"], seen["inner"] = arguments, Inner()

        def allocator(self):
            return seen["inner"]

    memory = types.SimpleNamespace(
        CUDAPluggableAllocator=Pluggable, change_current_allocator=lambda it: seen.__setitem__("current", it)
    )
    torch.cuda = types.SimpleNamespace(memory=memory, is_initialized=lambda: False)
    return torch, seen


def test_every_hook_is_set_to_a_function_of_the_library():
    sys.modules["torch"], seen = stand_in()
    plugin = gmlake._plugin
    original, plugin.check = plugin.check, lambda device: ""
    try:
        gmlake.enable("gmlake", fragment_limit="2MiB", poison=False)
        gmlake.enable("gmlake", fragment_limit="2MiB", poison=False)  # twice is once
        assert gmlake.enabled()
    finally:
        plugin.check = original
        del sys.modules["torch"]
    assert seen["arguments"] == (str(HERE / "libgmlake_torch.so"), "gmlake_malloc", "gmlake_free")
    library = ctypes.CDLL(seen["arguments"][0])
    for setter, name in plugin.HOOKS.items():
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        assert seen["inner"].hooks[setter] == address, setter
    assert seen["current"] is plugin.state.allocator
    raises(ValueError, "already in use", gmlake.enable, "caching")


def found():
    """What `stats` says of one GPU, made up."""
    bytes_ = dict(requested=3 << 20, allocated=4 << 20, active=4 << 20, reserved=33 << 20)
    return dict(
        device=0, allocator="lake", current=bytes_, peak={**bytes_, "reserved": 47 << 30}, live_blocks=1, mallocs=2,
        frees=1, pending_blocks=0, num_ooms=0, num_alloc_retries=5, requested_bytes_total=9, freed_bytes_total=6,
        driver_calls={"map": 3}, driver_ns={"map": 5_250_000},
    )


def test_pytorchs_questions_are_answered_from_our_numbers():
    queries = gmlake._plugin._queries
    torch, _ = stand_in()
    torch.cuda.memory._get_device_index = lambda device, optional: device or 0
    torch.cuda.is_initialized = lambda: True
    asked = []
    segments = [dict(segment_pool_id=(0, 0)), dict(segment_pool_id=(0, 1))]
    queries.answer(torch, lambda device: found() if device == 0 else None, asked.append, lambda: segments)
    nested = torch.cuda.memory_stats_as_nested_dict(0)
    assert nested["reserved_bytes"]["all"] == dict(current=33 << 20, peak=47 << 30), nested
    assert nested["allocation"]["all"] == dict(current=1, allocated=2, freed=1) and nested["num_alloc_retries"] == 5
    assert torch.cuda.memory.memory_stats_as_nested_dict(1) == {}
    text = torch.cuda.memory_summary()
    assert ["reserved", "33.00", "MiB", "47.00", "GiB"] in [line.split() for line in text.splitlines()], text
    assert ["map", "3", "5.2", "ms"] in [line.split() for line in text.splitlines()], text
    assert "driver call" not in torch.cuda.memory_summary(abbreviated=True)
    assert "no GPU memory" in torch.cuda.memory_summary(1)
    torch.cuda.reset_peak_memory_stats(1)
    assert asked == [1]
    assert torch.cuda.memory_snapshot() == segments
    assert torch.cuda.memory.memory_snapshot((0, 1)) == segments[1:]


def test_the_mount_has_its_sources_and_says_how_it_is_built():
    mount = gmlake._plugin.full
    assert {"interface.h", *mount.SOURCES} <= set(os.listdir(HERE / "mount"))
    assert [mount.minor(text) for text in ("2.9.0", "2.11.0+cu130", "2.15.1")] == [9, 11, 15]
    assert [mount.minor(text) for text in ("2.8.0", "2.16.0", "2.12.0.dev20260101", "3.0.0")] == [None] * 4
    path, why = mount.library("2.16.0")
    assert path is None and "is not one of 2.9 to 2.15" in why, why
    path, why = mount.library("2.9.1")
    assert path is not None or "python -m gmlake mount" in why, why


def test_a_snapshot_of_nothing_is_a_snapshot():
    with tempfile.TemporaryDirectory() as folder:
        gmlake.snapshot(f"{folder}/a.json")
        with open(f"{folder}/a.json") as file:
            content = json.load(file)
        gmlake.snapshot(f"{folder}/a.pickle")
        with open(f"{folder}/a.pickle", "rb") as file:
            assert pickle.load(file) == content
        assert sorted(os.listdir(folder)) == ["a.json", "a.pickle"]
        assert content["segments"] == [] and content["device_traces"] == [], content
        raises(OSError, "No such file", gmlake.snapshot, f"{folder}/none/a.pickle")


def test_options_come_from_the_environment_and_the_call():
    conf = gmlake._plugin.configuration
    os.environ["GMLAKE_CONF"] = "allocator=gmlake, fragment_limit=4MiB,record=on"
    try:
        assert conf(None, {}) == "allocator=gmlake,fragment_limit=4MiB,record=on"
        assert conf("gmlake", {"fragment_limit": "2MiB"}) == "allocator=gmlake,fragment_limit=2MiB,record=on"
        assert conf("caching", {"poison": True}) == "record=on,allocator=caching,poison=on"
    finally:
        del os.environ["GMLAKE_CONF"]
    assert conf(None, {}) == ""


def test_the_command_line():
    run = [sys.executable, "-m", "gmlake"]
    done = subprocess.run([*run, "run", "--allocator", "magic", __file__], capture_output=True, text=True)
    assert done.returncode == 2 and "there is no allocator" in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    done = subprocess.run([*run, "check"], capture_output=True, text=True)
    assert (done.returncode == 0) == (gmlake.check() == ""), done.stderr


def test_wrong_input_ends_every_command_with_2():
    row = "convolution,direction=forward {}"
    with tempfile.TemporaryDirectory() as folder:
        def list_of(*lines):
            path = Path(folder, f"{len(lines)}{len(lines[0])}.csv")
            path.write_text("".join(f"{line}\n" for line in lines))
            return str(path)

        header = "kind,arguments"
        for command, text in [
            (["measure", f"{folder}/absent.csv"], "absent.csv: No such file"),
            (["measure", list_of("a,b", "1,2")], "no column 'kind'"),
            (["measure", list_of(header, row.format("type=float16"), row.format("$(x)"))], "line 3: invalid arguments 'd"),
            (["measure", list_of(header, "magic,a=1")], "line 2: invalid kind 'magic'"),
            (["measure", "--seconds", "x", "layers.csv"], "--seconds"),
            (["run", "--conf", "fragment_limit", "x.py"], "invalid option 'fragment_limit'; expected NAME=VALUE"),
            (["mount", "--torch", f"{folder}/absent"], "absent: no PyTorch"),
            (["predict", f"{folder}/absent.py"], ""),
            (["magic"], "invalid choice: 'magic'"),
        ]:
            done = subprocess.run([sys.executable, "-m", "gmlake", *command], capture_output=True, text=True)
            assert done.returncode == 2 and text in done.stderr, (command, done.stderr)
            assert len(done.stderr.splitlines()) == 1 and not done.stdout, (command, done.stderr)


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("ok", name)
