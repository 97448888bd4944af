"""Writes the snapshot of this folder in every protocol and as JSON: `python3 make.py` in this folder."""

import json
import pickle

A, B, C = 0x7F0000000000, 0x7F0000200000, 0x7F0000A00000
frame = {"name": "forward", "filename": "model.py", "line": 12}
main = {"name": "main", "filename": "train.py", "line": 3}
stack = [frame, main]


def entry(action, addr, size, stream, time, **more):
    key = "device_free" if action == "oom" else "addr"
    return {"action": action, key: addr, "size": size, "stream": stream, "time_us": time, **more}


snapshot = {
    "segments": [
        {"device": 1, "address": A, "total_size": 2097152, "allocated_size": 512, "active_size": 1536,
         "requested_size": 1400, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0),
         "is_expandable": False, "frames": [],
         "blocks": [{"address": A, "size": 512, "requested_size": 400, "state": "active_allocated", "frames": stack},
                    {"address": A + 512, "size": 1024, "requested_size": 1000, "state": "active_pending_free",
                     "frames": []},
                    {"address": A + 1536, "size": 2095616, "requested_size": 0, "state": "inactive", "frames": []}]},
    ],
    "device_traces": [[], [
        entry("segment_alloc", A, 2097152, 0, 1000, frames=stack),
        entry("alloc", A, 400, 0, 1001, frames=stack, compile_context="N/A"),
        entry("alloc", A + 512, 1000, 0, 1002, frames=[main]),
        entry("segment_map", B, 8388608, 2**64 - 16, 1003),
        entry("alloc", B, 8000000, 2**64 - 16, 1004),
        entry("free_requested", B, 8000000, 2**64 - 16, 1005),
        entry("free_completed", B, 8000000, 2**64 - 16, 1006),
        entry("segment_unmap", B, 8388608, 2**64 - 16, 1007),
        entry("annotate", 0, 0, 0, 1008),
        entry("oom", 4096, 1 << 40, 0x50, 1009),
        entry("free_requested", A + 512, 1000, 0, 1010),
    ]],
    "allocator_settings": {
        "PYTORCH_CUDA_ALLOC_CONF": "large_segment_size_mb:64", "max_split_size": -1,
        "garbage_collection_threshold": 0.5, "expandable_segments": True,
        "roundup_power2_divisions": {"1": 4, "32768": 8},
    },
    "external_annotations": [
        {"name": "Optimizer.step#SGD.step", "stage": "START", "device": 1, "time_us": 1003},
        {"name": "Optimizer.step#SGD.step", "stage": "END", "device": 1, "time_us": 1005},
        {"name": "elsewhere", "stage": "START", "device": -1, "time_us": 1003},
    ],
}

for protocol in range(2, 6):
    with open(f"snapshot.{protocol}.pickle", "wb") as file:
        pickle.dump(snapshot, file, protocol)
with open("snapshot.json", "w") as file:
    json.dump(snapshot, file)
