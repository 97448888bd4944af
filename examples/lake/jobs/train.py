"""A training job of the lists: a model of some kind and family, trained by some engine.

    train.py KIND FAMILY [--engine ENGINE] [options]
       │     │                  └─ engines.py, sharded.py: who shards, wraps and steps
       └─────┴─ text.py, vision.py ...: `build` makes the model, `batch` makes a batch on the host

What a model is called with are the batch's items, and what it returns has a `loss`. Lengths are
those asked for, or with `--varied` drawn anew for each batch. Weights and inputs mean nothing.
"""

import argparse
import importlib

import engines

KINDS = ["text", "vision", "detection", "speech", "diffusion", "graph", "recommender", "policy"]


def main():
    given = options()
    kind = importlib.import_module(given.kind)
    getattr(kind, "run", engines.run)(given, kind)


def options():
    parser = argparse.ArgumentParser(description="one training job")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("family", help="of the model: llama, bert, resnet50 ...; see the kind's file")
    parser.add_argument("--engine", choices=engines.names(), default="loop")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=8, help="of each GPU")
    parser.add_argument("--accumulate", type=int, default=1, help="batches in each step")
    parser.add_argument("--length", type=int, default=512, help="the longest: tokens, pixels, seconds, nodes")
    parser.add_argument("--varied", action="store_true", help="lengths that vary from batch to batch")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--head", type=int, default=64, help="channels of an attention head")
    parser.add_argument("--task", default="causal", help="of texts: causal, masked, classes, seq2seq")
    parser.add_argument("--attention", default="sdpa", choices=["sdpa", "eager"])
    parser.add_argument("--precision", default="bf16", choices=["fp32", "fp16", "bf16", "pure"],
                        help="fp16 and bf16 by autocast; pure: weights in bf16 too")
    parser.add_argument("--optimizer", default="adamw", choices=["adamw", "adam", "sgd", "adafactor"])
    parser.add_argument("--lora", type=int, default=0, metavar="RANK")
    parser.add_argument("--checkpointing", action="store_true", help="activations are recomputed")
    parser.add_argument("--offload", action="store_true", help="parameters and optimizer on the host")
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
