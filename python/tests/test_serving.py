"""What `python -m gmlake predict --serve` says of a server that stands in for vLLM: its modules, and the functions that are read.

As `test_predict.py`: without a PyTorch wheel for CUDA it tests only what needs none, and says so. The real one is
`stacks vllm-serve`.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gmlake.predict import options
from gmlake.predict.order import Job, Order
from gmlake.predict.serving import answer, chart, record, requests, vllm
from gmlake.predict.serving.verdict import verdict
from stand_in_vllm import SERVER, VLLM
from test_predict import raises, result, run_all

MIB = 1 << 20

def package(folder):
    """Writes the package that stands in for vLLM."""
    for name, text in VLLM.items():
        path = Path(folder, "vllm", f"{name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def serve(*arguments, before=(), requests=""):
    """The exit code, the result in JSON, what is printed, and messages."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "requests.csv").write_text(requests)
        Path(folder, "serve.py").write_text(SERVER)
        paths = [package(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-m", "gmlake", "predict", "--serve", *before, "--json", "a.json", "serve.py", *arguments]
        done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True)
        path = Path(folder, "a.json")
        return done.returncode, result(json.loads(path.read_text())) if path.exists() else None, done.stdout, done.stderr


# Without PyTorch.


def worker(**facts):
    return {"device": "H100", "weights_bytes": 3, "outside_bytes": 5, "growth_bytes": 2, "available_bytes": 90, **facts}


def content(**facts):
    return {**record.empty(), "version": "vLLM 1", **facts}


def failure(at, text, is_memory=False):
    return {"at": at, "text": text, "is_memory": is_memory}


def test_ranks_of_all_engines_are_counted_through():
    caches = {"cache_tokens": 8, "context_tokens": 4, "requests_at_once": [[4, 2.0]], "longest_context_tokens": 8}
    found = verdict([
        content(workers={"1.0": worker(), "1.10": worker(weights_bytes=4)}, host_memory_bytes=10),
        content(workers={"0.2": worker()}, engines={"0": {"cache_bytes": [6, 7, 8], **caches}}, host_memory_bytes=5),
        content(workers={"2.0": worker(available_bytes=-7)}),
        content(is_ready=True),
    ], None, 1.0)
    assert found.starts and found.version == "vLLM 1" and found.host_memory_bytes == 15, found
    assert [each.rank for each in found.ranks] == [0, 1, 2, 3] and found.ranks[2].server.weights_bytes == 4, found.ranks
    assert found.ranks[3].server.kv_cache_bytes == 0, "less than nothing is left"
    first, second = found.ranks[0].server, found.ranks[1].server
    assert (first.kv_cache_bytes, first.kv_cache_tokens, first.non_torch_bytes) == (8, 8, 7), first
    assert (second.kv_cache_bytes, second.kv_cache_tokens) == (90, None), second
    assert first.requests_at_once == [{"tokens": 4, "requests": 2.0}], first
    assert "2.0 requests of 4 tokens" in answer.sentence(found)


def test_the_reason_is_the_first_word_on_memory_or_the_first_of_all():
    late, early = failure(2, "ValueError: KV cache is needed", True), failure(1, "RuntimeError: it broke")
    refused = verdict([content(failures=[early]), content(failures=[late])], "the front end's words", 0)
    assert refused.starts is False and refused.reason == late["text"], refused
    broken = verdict([content(failures=[failure(3, "later")]), content(failures=[early])], "the front end's words", 0)
    assert broken.starts is None and broken.reason == early["text"], broken
    alone = verdict([], "it ended by sys.exit(2)", 0)
    assert alone.starts is None and alone.reason == "it ended by sys.exit(2)" and len(alone.ranks) == 1, alone
    compiled = verdict([content(failures=[failure(1, "RuntimeError: Could not find nvcc")])], None, 0)
    assert "VLLM_USE_FLASHINFER_SAMPLER=0" in " ".join(answer.notes(compiled)), list(answer.notes(compiled))


def test_a_number_that_is_not_there_is_unknown_and_nothing_else():
    with tempfile.TemporaryDirectory() as folder:
        own = record.Record(f"{folder}/x")

        class Worker:
            def load_model(self):
                self.vllm_config = None  # another version

            def determine_available_memory(self):
                raise MemoryError("CUDA out of memory")

        class Module:
            pass

        Module.Worker = Worker
        vllm.hook_worker(own, Module)
        vllm.hook_cache(own, Module)
        vllm.hook_engine(None, own, Module)
        each = Worker()
        each.load_model()
        try:
            each.determine_available_memory()
        except MemoryError:
            pass
        else:
            raise AssertionError("the error is lost")
        (found,) = record.read(f"{folder}/x")
        assert not os.listdir(folder) and not found["workers"], found
        (why,) = found["failures"]
        assert why["is_memory"] and "CUDA out of memory" in why["text"] and why["at"] <= time.time(), why


def test_a_chart_has_a_bar_for_each_configuration_and_says_how_it_ends():
    from xml.etree import ElementTree

    full = {"activation_peak_bytes": 1, "device_memory_bytes": 100 << 30, "weights_bytes": 20 << 30, "available_bytes": 50 << 30}
    starts = verdict([content(workers={"0.0": worker(**full)}, engines={"0": {"cache_tokens": 4096}}, is_ready=True)], None, 0)
    refused = verdict([content(workers={"0.0": worker(**full)}, failures=[failure(1, "cache is needed", True)])], None, 0)
    failed = verdict([], "no such folder", 0)
    assert chart.svg([({"gpu": "x"}, failed)]) == "", "there is no card to draw"
    picture = ElementTree.fromstring(chart.svg([({"gpu": "a<b"}, starts), ({"gpu": "c"}, refused), ({"gpu": "d"}, failed)]))
    texts = ["".join(each.itertext()) for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    for words in ("a<b", "4,096 tokens", "does not start", "failed"):
        assert words in texts, texts
    boxes = [each.attrib for each in picture.iter("{http://www.w3.org/2000/svg}rect") if each.get("height") == "22"]
    weights, cache = (float(boxes[place]["width"]) for place in (0, 3))
    assert abs(cache / weights - 2.5) < 0.01, boxes
    assert [each.get("fill-opacity") for each in boxes if each["fill"] == chart.COLOURS["KV cache"]] == [None, "0.3"], boxes


def test_a_server_needs_no_options_of_ranks_or_steps():
    import argparse

    parser = argparse.ArgumentParser()
    options.add(parser.add_subparsers())

    def ordered(*words):
        return options.order_of(parser.parse_args(["predict", "--serve", *words, sys.executable]), ["H100 80GB"])

    for words in (["--world", "2"], ["--steps", "3"], ["--ranks", "0"]):
        raises(f"{words[0]} does not work with --serve", ordered, *words)
    order = ordered("--vary", "a=1,2", "--gpu", "h100-80gb")
    assert order.gpus == 8 and order.memory is None and order.serve, order
    assert Job.from_json(Job(order, True, False, "a.pickle", "b").to_json()).order == order
    assert Order.of(parser.parse_args(["predict", "x"])).serve is False


def test_requests_are_read_in_the_order_of_their_arrival():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "requests.csv")

        def read(text):
            path.write_text(text)
            return requests.read(str(path))

        found = read("prompt_tokens,arrival_s,output_tokens\n7,2.5,1\n5,0,3\n")
        assert found == [(0.0, 5, 3), (2.5, 7, 1)], found
        head = "arrival_s,prompt_tokens,output_tokens\n"
        for text, expected in [
            ("", "line 1: invalid header; expected arrival_s,prompt_tokens,output_tokens"), (head, "no requests"),
            ("arrival_s,prompt_tokens\n1,2\n", "line 1: invalid header"),
            (f"{head}0,1,1\n1,x,2\n", 'line 3: invalid prompt_tokens "x"; expected a whole number, at least 1'),
            (f"{head}0,1,1\n\n1,2,0\n", 'line 4: invalid output_tokens "0"'), (f"{head}0,1.5,1\n", 'prompt_tokens "1.5"'),
            (f"{head}-1,2,3\n", 'line 2: invalid arrival_s "-1"; expected seconds, at least 0'),
            (f"{head}nan,2,3\n", "arrival_s"), (f"{head}0,2\n", 'line 2: invalid output_tokens ""'),
            (f"{head}0,2,3,4\n", "line 2: too many columns"),
        ]:
            raises(expected, read, text)
        path.write_bytes(b"\xff\xfe\x00")
        raises("requests.csv", requests.read, str(path))
        raises("No such file", requests.read, f"{folder}/none.csv")


def test_requests_that_were_not_served_are_a_message():
    found = verdict([content(workers={"0.0": worker()}, engines={"0": {"unserved": "no scheduler"}}, is_ready=True)], None, 0)
    assert "the requests were not served: no scheduler" in list(answer.notes(found)) and not answer.requests([("", found)])


# With PyTorch.


def test_a_server_that_starts_says_what_it_uses():
    code, found, shown, said = serve("--ranks", "2", "--context", "1024")
    assert code == 0 and found["starts"] is True and found["version"] == "vLLM 0.0.1", said
    assert [each["rank"] for each in found["ranks"]] == [0, 1] and "H200" in found["ranks"][0]["device"], found
    server = found["ranks"][1]["server"]
    expected = {
        "weights_bytes": 3 * MIB, "activation_peak_bytes": 2 * MIB, "graphs_bytes": 5 * MIB, "graphs_estimate_bytes": 4 * MIB,
        "non_torch_bytes": 701 * MIB, "kv_cache_bytes": 64 * MIB, "kv_cache_tokens": 65536, "longest_context_tokens": 65536,
    }
    assert {name: server[name] for name in expected} == expected, server
    assert {"tokens": 8192, "requests": 8.0} in server["requests_at_once"], server
    assert "64.0 requests of 1,024 tokens fit at once" in shown and shown.count("64.00 MiB") == 2, shown


def test_a_server_in_one_process_ends_when_it_is_ready():
    code, found, _, said = serve("--alone", "true", "--eager", "true")
    assert code == 0 and found["ranks"][0]["server"]["graphs_bytes"] == 0, said


def test_a_server_that_refuses_to_start_is_an_answer_in_its_own_words():
    code, found, shown, said = serve("--context", "131072")
    server = found["ranks"][0]["server"]
    assert code == 1 and found["starts"] is False and server["longest_context_tokens"] == 65536, said
    assert "the longest context that fits has 65,536 tokens" in shown, shown
    assert "its words: ValueError: (131072), KV cache is needed." in said, said
    code, found, _, said = serve("--breaks", '"weights"')
    assert code == 1 and "OutOfMemoryError" in found["reason"] and found["ranks"][0]["server"]["weights_bytes"] is None, said


def test_what_is_no_question_of_memory_is_wrong_usage():
    code, found, _, said = serve("--model", '"no/model"')
    assert code == 2 and found["starts"] is None and "no/model: no such folder" in said, said
    assert "did not import vLLM" not in said, said
    code, _, _, said = serve("--breaks", '"compiler"')
    assert code == 2 and "Could not find nvcc" in said and "VLLM_USE_FLASHINFER_SAMPLER=0" in said, said


def test_what_ended_a_script_is_not_blamed_on_vllm():
    killed = verdict([], "its process was killed by SIGKILL", 0)
    assert list(answer.notes(killed)) == ["its process was killed by SIGKILL"]
    raised = list(answer.notes(verdict([], "ValueError: no", 0)))
    assert raised == ["its words: ValueError: no", "the script ended by itself; put right what it says above, and run again"]
    code, _, _, said = serve(before=["--conf", "max_split_size_mb:1"])
    assert code == 2 and said.startswith('gmlake: --conf "max_split_size_mb:1": max_split_size_mb is 1, but must be at least 20')
    assert len(said.splitlines()) == 1, said
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gmlake", "predict", "--serve", "vllm", "serve", "foo"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 2 and "gmlake: vLLM is not installed for" in done.stderr, done.stderr


def test_a_script_without_vllm_is_told_so():
    code, found, _, said = serve("--another", "1")
    assert code == 2 and found["reason"] == "the script ended before a server was ready" and "did not import vLLM" in said, said


def test_a_server_with_a_cuda_runtime_of_its_own_is_told_so_in_a_line():
    for module, name in [("sgl_kernel", "SGLang"), ("sglang", "SGLang"), ("", "a library of the script")]:
        code, found, _, said = serve("--runtime", json.dumps(module))
        (line,) = [line for line in said.splitlines() if "CUDA runtime linked into it" in line]
        assert code == 2 and line.startswith(f"gmlake: {name} has a CUDA runtime") and line[8:] == found["hint"], said
        assert "did not import vLLM" not in said and "initialization error" in found["reason"], said


REQUESTS = "arrival_s,prompt_tokens,output_tokens\n0,60,3\n0,30,20\n0,4096,1\n9,10,2\n"


def test_requests_are_served_by_the_servers_own_scheduler():
    code, found, shown, said = serve(before=["--requests", "requests.csv"], requests=REQUESTS)
    server = found["ranks"][0]["server"]
    # Three of 60, 30 and 10 tokens fill the room for 100; the first that says a token pushes the last out.
    expected = {"requests": 4, "too_long": 1, "preemptions": 1, "steps": 20, "seconds": None, "running": 3, "queue": 1}
    assert code == 0 and server["requests"], said
    assert {name: server["requests"][name] for name in expected} == expected, server["requests"]
    assert server["requests"]["kv_share"] == 0.96, server["requests"]
    assert (server["requests"]["kv_tokens"], server["requests"]["kv_bytes"]) == (62915, 64424509), server["requests"]
    assert "62,915" in shown and "96.0%" in shown, shown
    code, found, _, said = serve(before=["--requests", "requests.csv", "--step-ms", "100"], requests=REQUESTS)
    served = found["ranks"][0]["server"]["requests"]
    # The last arrives when the others are gone.
    assert (code, served["preemptions"], served["running"], served["seconds"]) == (0, 0, 2, 9.2), (served, said)


def test_requests_need_a_server_and_a_file_that_can_be_read():
    code, found, _, said = serve(before=["--requests", "requests.csv"], requests=REQUESTS + "1,2,-3\n")
    assert code == 2 and found is None and 'requests.csv, line 6: invalid output_tokens "-3"' in said, said
    code, _, _, said = serve(before=["--step-ms", "0", "--requests", "requests.csv"], requests=REQUESTS)
    assert code == 2 and "write milliseconds such as 25" in said, said
    code, _, _, said = serve(before=["--step-ms", "5"])
    assert code == 2 and "--step-ms works only with --requests" in said, said


def test_servers_are_varied_over_cards_and_settings():
    code, found, shown, said = serve("--alone", "true", before=["--vary", "context=1024,131072", "--vary", "gpu=h200,rtx-4090"])
    assert code == 0, said
    assert [each["starts"] for each in found["configurations"]] == [True, False, True, False], found
    assert {each["ranks"][0]["device"] for each in found["configurations"]} == {"NVIDIA H200", "NVIDIA GeForce RTX 4090"}, found
    assert len(shown.splitlines()) == 6 and "131072, h200      no" in shown, shown


if __name__ == "__main__":
    run_all(list(globals().items()), "test_a_server_that_starts_says_what_it_uses", "no server was started")
