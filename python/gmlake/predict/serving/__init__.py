"""Servers: `predict --serve`, which starts an unmodified vLLM on the virtual GPU and answers as the server would.

    command ──▶ run ──▶ job: `vllm serve` or a script with `LLM(...)`, up to the moment at which it could serve
       │                  └─▶ its processes ─ hooks ─▶ NAME.server.PID.json, a record of each
       ▼
    answer ◀── verdict: what the records say of each rank

`docs/serving.md` is the manual.
"""
