"""A fleet: many snapshots, on the engine that is there.

The work itself is `gmlake-sim fleet`, which writes Parquet part by part and does one
shard of all parts when asked to. A part is named after its content, written aside and then renamed. So shards may
run anywhere, die, and run again, and need to know nothing of each other:

    run(inputs, out, engine)                      predict(script, vary, ranks, out, engine)
      │  shard: a process of gmlake-sim             │  predictions: a process of gmlake predict
      └────────────────────┬────────────────────────┘     sweep(inputs, settings, out, engine): of gmlake-sim sweep
                           ▼
            engines: this machine, Ray tasks, or any concurrent.futures.Executor
                           │
                           ▼
            OUT/{runs,ranks,steps,errors}/job=J/date=D/part-*.parquet ──▶ result: Arrow, Ray Dataset

    import gmlake.fleet
    result = gmlake.fleet.run("snapshots/", "fleet", engine="ray")
    print(result.runs().to_pandas())

Ray and pyarrow are imported when they are used. `docs/engines.md` is the manual.
"""

from ..predict import Problem
from .jobs import run
from .predictions import predict
from .result import Result
from .sweeps import sweep

__all__ = ["Problem", "Result", "predict", "run", "sweep"]
