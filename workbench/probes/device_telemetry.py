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
from typing import TypeVar

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
    "Power Dissipation(W)": ("device_power_watts", 1.0),
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
# `npu-smi info` prints two lines per chip: number and name of the card, then number of the chip and perhaps its number
# among all chips; a card of newer products holds two chips
NPU_CARD = re.compile(r"^\|\s*(?P<card>\d+)\s+\S*[A-Za-z]\S*\s*\|[^|]*\|\s*(?P<watts>\S+)\s+(?P<celsius>\S+)\s")
NPU_CHIP = re.compile(
    r"^\|\s*(?P<chip>\d+)(?:\s+(?P<number>\d+))?\s*\|\s*[0-9A-Fa-fNn][\w:.]*\s*\|\s*(?P<used>\S+)\s+(?P<memory>.*)\|"
)
PAIR = re.compile(r"(\d+)\s*/\s*(\d+)")

CSV_FORMAT = "--format=csv,noheader,nounits"

Cards = dict[int, dict[str, float]]  # card -> metric -> value
T = TypeVar("T")
Run = Callable[[list[str]], str]


def read_devices(run: Run | None = None) -> Cards:
    """Metrics of this process' card, or of all cards where the launcher names none; empty without a tool.

    A card of Ascend is a chip: where `npu-smi` numbers the chips, `DEVICE_ID` is that number.

    Raises:
        OSError, subprocess.SubprocessError: the tool is there but fails.
    """
    ask = run or _output
    if shutil.which("npu-smi"):
        return _npus(ask)
    if shutil.which("nvidia-smi"):
        fields = ["index", *NVIDIA_FIELDS]
        return _own(parse_nvidia(ask(["nvidia-smi", f"--query-gpu={','.join(fields)}", CSV_FORMAT])))
    return {}


def parse_npu_common(text: str) -> dict[int, dict[str, float]]:
    """Metrics per chip of `npu-smi info -t common`; 0 where it numbers none.

    The board's controller comes last, under a name instead of a number; it repeats names of metrics.
    """
    chips: dict[int, dict[str, float]] = {}
    chip: int | None = 0
    for line in text.splitlines():
        name, _, value = (part.strip() for part in line.partition(":"))
        if name == "Chip ID" and value.isdigit():
            chip = int(value)
        elif name == "Chip Name":
            chip = None
        elif name in NPU_COMMON and chip is not None:
            metric, factor = NPU_COMMON[name]
            _put(chips.setdefault(chip, {}), metric, value, factor)
    return chips


def parse_npu_table(text: str) -> dict[int, tuple[int, int, dict[str, float]]]:
    """Chips in the table of `npu-smi info`: number -> card, chip on the card, metrics.

    The number is that of the chip among all where the table has one, else the card's.
    """
    table, _, _ = text.partition("Process id")
    found: dict[int, tuple[int, int, dict[str, float]]] = {}
    card: re.Match[str] | None = None
    for line in table.splitlines():
        if match := NPU_CARD.match(line):
            card = match
        elif card is not None and (match := NPU_CHIP.match(line)):
            number = int(match["number"] or card["card"])
            found[number] = (int(card["card"]), int(match["chip"]), _table_metrics(card, match))
            card = None
    return found


def _table_metrics(card: re.Match[str], chip: re.Match[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    _put(found, "device_power_watts", card["watts"], 1.0)
    _put(found, "device_temperature_celsius", card["celsius"], 1.0)
    _put(found, "device_utilization_share", chip["used"], SHARE_PER_PERCENT)
    for used, total in PAIR.findall(chip["memory"])[::-1]:  # the last pair is the card's own memory, where it has one
        if int(total) > 0 and "device_memory_total_bytes" not in found:
            found |= {"device_memory_used_bytes": float(used) * MIB, "device_memory_total_bytes": float(total) * MIB}
    return found


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


def _npus(ask: Run) -> Cards:
    """Figures of the table, and what only `-t common` prints (clocks), asked once per card."""
    chips = _own(parse_npu_table(ask(["npu-smi", "info"])))
    cards = sorted({card for card, _, _ in chips.values()})
    common = {card: parse_npu_common(ask(["npu-smi", "info", "-t", "common", "-i", str(card)])) for card in cards}
    return {n: found | common[card].get(chip, {}) for n, (card, chip, found) in chips.items()}


def _own(cards: dict[int, T]) -> dict[int, T]:
    own = _own_card()
    return cards if own is None else {number: card for number, card in cards.items() if number == own}


def _own_card(environment: Mapping[str, str] = os.environ) -> int | None:
    text = environment.get(DEVICE_VARIABLE, "")
    return int(text) if text.isdigit() else None


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=True)
    return done.stdout
