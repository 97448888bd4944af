"""A day of requests to a server, made up: 400, eight a second, most of a thousand tokens, with three hundred in answer.

    python examples/serve/day.py > day.csv
    python -m gmlake predict --serve --requests day.csv vllm serve MODEL
"""

import random

random.seed(7)
at = 0
print("arrival_s,prompt_tokens,output_tokens")
for _ in range(400):
    at += random.expovariate(8)
    print(f"{at:.3f},{int(random.lognormvariate(7, 0.8)) + 1},{int(random.lognormvariate(5.8, 0.7)) + 1}")
