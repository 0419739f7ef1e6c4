"""State of the cards, asked of `npu-smi` (Ascend) or `nvidia-smi` (NVML): temperature, clock, power, memory, use.

Only what is installed is asked. The commands take tens to hundreds of milliseconds and run beside the training.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping

COMMAND_TIMEOUT_S = 10.0
MIB = 2**20
SHARE_PER_PERCENT = 0.01
DEVICE_VARIABLE = "DEVICE_ID"  # card of this process, where the launcher says it
# lines of `npu-smi info -t common -i <card>`: name -> metric, factor
NPU_COMMON = {
    "Temperature(C)": ("device_temperature_celsius", 1.0),
    "NPU Real-time Power(W)": ("device_power_watts", 1.0),
    "Aicore curFreq(MHZ)": ("device_clock_mhz", 1.0),
    "Aicore Freq(MHZ)": ("device_rated_clock_mhz", 1.0),
    "Aicore Usage Rate(%)": ("device_utilization_share", SHARE_PER_PERCENT),
    "HBM Usage Rate(%)": ("device_memory_used_share", SHARE_PER_PERCENT),
}
NVIDIA_FIELDS = {
    "temperature.gpu": ("device_temperature_celsius", 1.0),
    "power.draw": ("device_power_watts", 1.0),
    "clocks.sm": ("device_clock_mhz", 1.0),
    "clocks.max.sm": ("device_rated_clock_mhz", 1.0),
    "utilization.gpu": ("device_utilization_share", SHARE_PER_PERCENT),
    "memory.used": ("device_memory_used_bytes", MIB),
    "memory.total": ("device_memory_total_bytes", MIB),
}
NPU_CARD = re.compile(r"^\|\s*(\d+)\s+\S*[A-Za-z]\S*\s*\|", re.MULTILINE)  # first line of a card: number and name

Cards = dict[int, dict[str, float]]  # card -> metric -> value
Run = Callable[[list[str]], str]


def read_devices(run: Run | None = None) -> Cards:
    """Metrics of this process' card, or of all cards where the launcher names none; empty without a tool.

    Raises:
        OSError, subprocess.SubprocessError: the tool is there but fails.
    """
    ask = run or _output
    if shutil.which("npu-smi"):
        common = ["npu-smi", "info", "-t", "common", "-i"]
        return {card: parse_npu_common(ask([*common, str(card)])) for card in _npus(ask)}
    if shutil.which("nvidia-smi"):
        fields = ["index", *NVIDIA_FIELDS]
        cards = parse_nvidia(ask(["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]))
        own = _own_card()
        return cards if own is None else {k: v for k, v in cards.items() if k == own}
    return {}


def parse_npu_common(text: str) -> dict[str, float]:
    """Metrics of the first chip in `npu-smi info -t common`; the board's controller repeats some names below it."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = (part.strip() for part in line.partition(":"))
        if name in NPU_COMMON:
            metric, factor = NPU_COMMON[name]
            _put(found, metric, value, factor)
    return found


def parse_npu_cards(text: str) -> list[int]:
    """Numbers of the cards in the table of `npu-smi info`."""
    table, _, _ = text.partition("Process id")
    return sorted({int(number) for number in NPU_CARD.findall(table)})


def parse_nvidia(text: str) -> Cards:
    """Metrics per card of `nvidia-smi --query-gpu=index,... --format=csv,noheader,nounits`."""
    cards: Cards = {}
    for line in text.splitlines():
        index, *values = (cell.strip() for cell in line.split(","))
        if index.isdigit() and len(values) == len(NVIDIA_FIELDS):
            found: dict[str, float] = {}
            for value, (metric, factor) in zip(values, NVIDIA_FIELDS.values(), strict=True):
                _put(found, metric, value, factor)
            cards[int(index)] = found
    return cards


def _put(found: dict[str, float], metric: str, value: str, factor: float) -> None:
    """Keep a number; words such as NA, - and [N/A] are missing. The first of a name counts."""
    try:
        number = float(value) * factor
    except ValueError:
        return
    if math.isfinite(number):
        found.setdefault(metric, number)


def _npus(ask: Run) -> list[int]:
    own = _own_card()
    return parse_npu_cards(ask(["npu-smi", "info"])) if own is None else [own]


def _own_card(environment: Mapping[str, str] = os.environ) -> int | None:
    text = environment.get(DEVICE_VARIABLE, "")
    return int(text) if text.isdigit() else None


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=True)
    return done.stdout
