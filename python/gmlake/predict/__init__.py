"""A prediction: how much GPU memory a training script will need, found on a machine without a GPU.

The script runs, unchanged, in a process of its own. Everything in it is the real thing, PyTorch's
caching allocator included, down to the CUDA libraries. In their place is one library of ours, the
virtual GPU: it says yes to every call, copies data for real, and computes nothing. PyTorch's own
recorder writes down what the script asked for, and `gmlake-sim` answers from that recording.

    python -m gmlake predict OPTIONS SCRIPT ARGS
           │  command: options, errors     grid: --vary, many configurations
           ▼
         run ── a process for each rank ──▶  job: the script, PyTorch, its recorder
           │                                 ───────────────────────────────────────
           │                                 libgmlake_gpu.so in place of CUDA
           │   a snapshot and facts a rank
           ▼
      simulator ── gmlake-sim: peaks, other allocators, cards ──▶ answer: table, JSON

`docs/predict.md` is the manual.
"""


class Problem(Exception):
    """Something that the user can put right. The text says what, where and how, in one line."""
