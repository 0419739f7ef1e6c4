"""A real evaluator process without MindSpore: what it does is named in the checkpoint's file name."""

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--step", type=int)
    arguments = parser.parse_args()
    name = arguments.checkpoint.stem
    with (arguments.run / "evaluations.log").open("a") as f:
        f.write(f"{name} {os.getpid()}\n")
    (arguments.run / "threads.txt").write_text(os.environ.get("OMP_NUM_THREADS", ""))
    if "misfit" in name:
        print("It lacks 1 of the network's 3 parameters.", file=sys.stderr)
        return 3
    if "crash" in name:
        print("Traceback ...\nRuntimeError: the device went away", file=sys.stderr)
        return 1
    if "full" in name and not (arguments.run / "space").exists():
        print("OSError: [Errno 28] No space left on device", file=sys.stderr)
        return 1
    time.sleep(float(os.environ.get("STAND_IN_SECONDS", "0")))
    step, evaluation_id = arguments.step or 1, f"{os.getpid()}-{time.time_ns()}"
    rows = []
    for i, subset in enumerate(("code", "中文 <script>alert(1)</script>")):
        loss = 2.0 + i + 5.0 / step
        shared = {"checkpoint": name, "step": step, "subset": subset, "evaluation_id": evaluation_id, "n": 8}
        rows.append({**shared, "metric": "loss", "value": loss, "low": loss - 0.1, "high": loss + 0.1})
        rows.append({**shared, "metric": "perplexity", "value": math.exp(loss)})
    path = arguments.run / "evals" / "checkpoint.jsonl"
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as f:
        f.write("".join(json.dumps(r) + "\n" for r in rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
