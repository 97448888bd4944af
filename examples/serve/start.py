"""Starts vLLM with a model's folder and options, and ends: `start.py FOLDER [NAME=JSON...]`."""

import json
import sys

from vllm import LLM

if __name__ == "__main__":
    options = dict(given.split("=", 1) for given in sys.argv[2:])
    LLM(sys.argv[1], load_format="dummy", skip_tokenizer_init=True, **{name: json.loads(value) for name, value in options.items()})
    print("started", flush=True)
