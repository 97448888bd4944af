"""A guard: whether a program needs more GPU memory than it did, for continuous integration.

    python -m gmlake guard --baseline memory.json SCRIPT ARGS
           │
           ▼
       a prediction, or a recording ──▶ gmlake-sim: peaks, and the lines that hold them
                                           │
       memory.json, in the repository ─────┴──▶ change: what grew, by which line ──▶ exit code

The prediction is made with `--events early`: the GPU is done with everything at once, no clock is
asked, and so the same program gives the same bytes. `docs/guard.md` is the manual.
"""
