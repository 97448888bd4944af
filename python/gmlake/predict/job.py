"""The job: one script on the virtual GPU, in this process, and the facts about it.

`run` starts it as `python -m gmlake.predict.job ORDER`, with the library in place. The order and
the facts are JSON. The facts are written last, when the snapshot is complete.
"""

import faulthandler
import json
import os
import resource
import runpy
import sys
import time
import traceback

from . import library, others
from .categories import Categories
from .recorder import Recorder
from .steps import Finished, Steps

# Ends of a script: to its end, after the steps asked for, by sys.exit, by an exception.
DONE, FINISHED, EXITED, FAILED = "done", "finished", "exited", "failed"

PATIENCE = 3600  # seconds for other ranks to come to their ends


def main():
    faulthandler.enable()
    order = json.loads(sys.argv[1])
    facts = {"problem": None}
    try:
        import torch
    except (ImportError, OSError) as error:
        facts["problem"] = unusable(error)
    else:
        facts.update(predict(torch, order))
    sys.stdout.flush()
    sys.stderr.flush()
    write(order["facts"], facts)
    # At once: what a script does at exit is of no interest, and may wait for what never comes.
    whole = facts.get("ended") in (DONE, FINISHED)
    if whole and order["together"]:
        time.sleep(PATIENCE)  # the others may still need this rank's store; `run` ends it
    os._exit(0 if whole else 1)


def unusable(error):
    """Why PyTorch could not be loaded, in one line."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "undefined symbol" in text:
        symbol = text.split("undefined symbol:")[-1].split(",")[0].strip()
        return f"PyTorch asks for {symbol}, which the virtual GPU lacks; is PyTorch newer than it?"
    return f"PyTorch cannot be loaded: {text}"


def predict(torch, order):
    """Runs the script and returns what is known of it afterwards."""
    from . import ranks, values  # they import PyTorch

    # Before the steps are counted: its hook must run before the one that ends the script.
    categories = Categories(torch) if order["categories"] else None
    steps, ooms = Steps(order["steps"]), []
    recorder = Recorder(torch, order["stacks"], lambda: ooms.append(steps.done + 1), categories)
    mode = values.mode(kind=order["values"], assume=order["assume"])
    if "RANK" in os.environ:
        ranks.prepare(alone=order["alone"])
    with mode:
        ended = run(order)
    facts = {**ended, **recorder.write(order["snapshot"]), **mode.facts()}
    facts.update(steps.facts(), torch=torch.__version__, oom_step=ooms[0] if ooms else None)
    facts.update(host_memory_bytes=peak_host_memory(), library=library.report(), **others.facts())
    return facts


def run(order):
    """Runs the script as Python would have, and says how it ended."""
    script = order["script"]
    sys.argv = [script, *order["arguments"]]
    try:
        if order["module"]:
            sys.path[0] = os.getcwd()
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(script))
            runpy.run_path(script, run_name="__main__")
    except BaseException as error:
        return end_by(error, order)
    return {"ended": DONE, "error": None}


def end_by(error, order):
    """How a script ended that did not come to its end; shows an exception's traceback."""
    if isinstance(error, Finished):
        return {"ended": FINISHED, "error": None}
    if isinstance(error, SystemExit):
        if error.code in (None, 0):
            return {"ended": DONE, "error": None}
        if not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        return {"ended": EXITED, "error": f"it ended by sys.exit({error.code!r})"}
    place = begin_of_script(error.__traceback__)
    last = traceback.format_exception_only(type(error), error)[-1].strip().splitlines()[0]
    if place is None and isinstance(error, ImportError):
        return {"ended": FAILED, "problem": f"-m {order['script']}: {error}"}
    # As Python would have for the script alone, without our frames.
    sys.stdout.flush()
    traceback.print_exception(type(error), error, place)
    return {"ended": FAILED, "error": last}


def begin_of_script(place):
    """The first place of a traceback that is not ours; None if the script did not begin."""
    ours = {os.path.abspath(__file__), runpy.__file__, "<frozen runpy>"}
    while place is not None and place.tb_frame.f_code.co_filename in ours:
        place = place.tb_next
    return place


def peak_host_memory():
    """Bytes of memory that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def write(path, facts):
    """Writes the facts, whole or not at all."""
    with open(path + ".part", "w") as file:
        json.dump(facts, file)
    os.replace(path + ".part", path)


if __name__ == "__main__":
    main()
