"""The table: what was predicted next to what the paper shows, in Markdown."""

GIB = 2**30
COLUMNS = [
    "cell", "batch", "paper: PyTorch", "caching", "paper: GMLake", "gmlake", "released",
    "expandable", "lake",
]
ALLOCATORS = ["caching", "gmlake", "gmlake-released", "expandable", "lake"]
FIGURES = {
    "strategies": "Strategies, ZeRO-3 on four GPUs",
    "scale-out": "GPUs, LR under ZeRO-3",
    "batch sizes": "Batch sizes, LR under ZeRO-3 on four GPUs",
    "platforms": "Platforms, four GPUs",
}
ASSUMED = """\
The paper states the models, the strategies, the GPUs and, in the sweeps, the batch sizes. Assumed here:

- Sequences of 512 tokens, the default of DeepSpeed-Chat's examples; {steps} steps; LoRA of rank 64 on all
  matrices of the blocks; attention written out (`eager`); bfloat16; AdamW; ZeRO-3's thresholds as in
  DeepSpeed-Chat.
- A batch is that of each GPU. Marked ° it is not stated: taken from where the paper's own sweep shows the
  same memory (OPT-1.3B 144; OPT-13B 55 and, for the platforms, 77; GPT-NeoX-20B 60), for Vicuna-13B from
  OPT-13B's. Without recomputation (N) such batches cannot be run, though the text says that all strategies
  have one in common: 24, 4 and 1. GLM-10B 32 and GPT-2 64 are free choices.
- GLM-10B with GPT-2's blocks; GPT-2 under Colossal-AI with R, as the paper's list of benchmarks has no
  LoRA for it.
- An A100 of 80 GB has {device} GiB for the job. `gmlake` is the paper's description with a fragmentation
  limit of 2 MiB, `released` the published code with its defaults.

Reserved memory at its peak, and how much of it was live at its peak. OOM: memory runs out."""


def write(cells, results, steps, device):
    """The whole report's table, figure by figure, and the count."""
    parts = [ASSUMED.format(steps=steps, device=device)]
    for figure, title in FIGURES.items():
        rows = [row(cell, results.get(cell.job.name)) for cell in cells if cell.figure == figure]
        parts.append(f"## {title}\n\n" + "\n".join([line(COLUMNS), RULE, *map(line, rows)]))
    parts.append("## Together\n\n" + count(cells, results))
    parts += missing(cells, results)
    return "\n\n".join(parts) + "\n"


def line(columns):
    return "| " + " | ".join(columns) + " |"


RULE = line([":---"] + ["---:"] * (len(COLUMNS) - 1))


def row(cell, result):
    """One cell; dashes where it was not predicted."""
    batch = f"{cell.job.batch}{'' if cell.stated else '°'}"
    ours = ["-"] * len(ALLOCATORS)
    if predicted(result):
        ours = [held(result["runs"][name]) for name in ALLOCATORS]
    theirs = [printed(*pair) for pair in zip(cell.reserved, cell.use)]
    return [cell.title, batch, theirs[0], ours[0], theirs[1], *ours[1:]]


def printed(reserved, use):
    """The paper's pair of values."""
    return f"{reserved} GB, {use:.1%}" if reserved is not None else "OOM"


def held(run):
    """Ours: GiB and utilization."""
    if run["oom"]:
        return "OOM"
    return f"{run['reserved'] / GIB:.1f} GiB, {run['live'] / run['reserved']:.1%}"


def predicted(result):
    return result is not None and not result["error"]


def count(cells, results):
    """How many cells were predicted, and how many of them run, by allocator."""
    found = [results[cell.job.name] for cell in cells if predicted(results.get(cell.job.name))]
    parts = [f"{len(found)} of {len(cells)} cells were predicted."]
    for name in ALLOCATORS:
        fit = [result for result in found if not result["runs"][name]["oom"]]
        parts.append(f"{name}: {len(fit)} run, {len(found) - len(fit)} run out of memory.")
    both = [
        result["runs"] for result in found
        if not any(result["runs"][name]["oom"] for name in ALLOCATORS)
    ]
    if both:
        parts.append(saved(both))
    return " ".join(parts)


def saved(runs):
    """The paper's measures over those cells that run under every allocator."""
    base = sum(run["caching"]["reserved"] for run in runs)
    parts = []
    for name in ALLOCATORS[1:]:
        less = base - sum(run[name]["reserved"] for run in runs)
        parts.append(f"{name} {less / len(runs) / GIB:.1f} GiB ({less / base:.1%})")
    return f"In the {len(runs)} that run under all, less reserved than caching: {', '.join(parts)}."


def missing(cells, results):
    """Why cells have no prediction."""
    reasons = {}
    for cell in cells:
        result = results.get(cell.job.name)
        if not predicted(result):
            reason = result["error"] if result else "not run"
            reasons.setdefault(reason, []).append(cell.title)
    reply = [f"- {'; '.join(titles)}: {reason}" for reason, titles in reasons.items()]
    return ["Not predicted:\n\n" + "\n".join(reply)] if reply else []
