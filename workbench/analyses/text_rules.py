"""One generated text -> what is wrong with it, rule by rule; None where a rule does not apply."""

from __future__ import annotations

import ast
import codeop
import json
import operator
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

LOOP_REPEATS = 4  # the end of the text is one fragment this often in a row
LOOP_CHARACTERS = 24
RULER_SHARE = 0.8
NGRAM = 4
SHORTEST_UNITS = 40  # words or CJK characters: shorter texts repeat little or nothing
REPEATED_SHARE = 0.5  # of the 4-grams; whole files of people's code and prose stay below (docs/post_training.md)
LONGEST_TAIL = 4000  # characters in which a loop is looked for
MIXED_SHARE = 0.2  # letters of scripts that neither prompt nor subset has
FEWEST_LETTERS = 10
CUT = frozenset({"length", "max_tokens", "max_length", "max_new_tokens", "model_length"})
UNITS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+|[^\w\s]")
PAIRS = {")": "(", "]": "[", "}": "{", "）": "（", "】": "【", "」": "「", "》": "《"}
LIST_MARK = re.compile(r"(?:^|\s)\w{1,3}[)）]")
SMILEY = re.compile(r"[:;=8][-'o^]?[()\[\]{}]")
FENCE = re.compile(r"```[ \t]*(\w*)[^\n]*\n(.*?)(?:```|\Z)", re.S)
NUMBER = r"\d[\d,]*(?:\.\d+)?"
EQUATION = re.compile(
    rf"(?<![\w.,)\]+*/×÷=^-])(?P<left>[(\s-]*{NUMBER}[)\s]*(?:[-+*/×÷][(\s-]*{NUMBER}[)\s]*)+)"
    rf"=\s*(?P<right>-?{NUMBER})(?![\d]|[.,]\d|\s*[-+*/×÷=^(%])"
)
OPERATIONS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip


def units(text: str) -> list[str]:
    """Words, single CJK characters and punctuation marks."""
    return UNITS.findall(text)


def distinct_share(parts: list[str], n: int) -> float | None:
    """Distinct-n: different n-grams over all n-grams; None for texts shorter than n.

    Source: Li et al., A Diversity-Promoting Objective Function for Neural Conversation Models, NAACL 2016.
    """
    grams = list(zip(*(parts[k:] for k in range(n)), strict=False))
    return len(set(grams)) / len(grams) if grams else None


def is_cut(finish_reason: str | None) -> bool | None:
    """Whether generation ended because of a length limit; None where nobody says why it ended."""
    return None if finish_reason is None else finish_reason.lower() in CUT


def is_empty(output: str) -> bool:
    """Nothing but blanks."""
    return not output.strip()


def loop(output: str) -> str | None:
    """The fragment that the text repeats at its end, at least `LOOP_REPEATS` times and over `LOOP_CHARACTERS`.

    A fragment without a letter or digit (a ruler of dashes) is none, unless it is `RULER_SHARE` of the whole text.
    """
    tail = output.rstrip()[-LONGEST_TAIL:][::-1]
    best, length = "", 0
    for end, border in enumerate(_borders(tail), 1):
        period = end - border
        if end >= max(LOOP_REPEATS * period, LOOP_CHARACTERS):
            best, length = tail[:period][::-1], end
    counts = any(c.isalnum() for c in best) or length >= RULER_SHARE * max(len(tail), 1)
    return best if best and counts else None


def _borders(text: str) -> Iterator[int]:
    """For each prefix the length of its longest proper border (Knuth, Morris and Pratt 1977)."""
    borders = [0]
    yield from borders[:1] if text else []
    for c in text[1:]:
        k = borders[-1]
        while k and text[k] != c:
            k = borders[k - 1]
        borders.append(k + 1 if text[k] == c else 0)
        yield borders[-1]


def is_repetitive(output: str) -> bool:
    """It ends in a loop, or more than `REPEATED_SHARE` of its 4-grams were there before."""
    if loop(output) is not None:
        return True
    parts = units(output)
    distinct = distinct_share(parts, NGRAM)
    return len(parts) >= SHORTEST_UNITS and distinct is not None and 1 - distinct > REPEATED_SHARE


def script(character: str) -> str | None:
    """Writing system of a letter: LATIN, CJK, CYRILLIC, ARABIC, ...; Japanese kana count as CJK. None for no letter."""
    if not character.isalpha():
        return None
    word = unicodedata.name(character, "").split(" ")[0]
    return "CJK" if word in ("HIRAGANA", "KATAKANA", "IDEOGRAPHIC") else word.split("-")[0] or None


def scripts(text: str) -> Counter[str]:
    """Letters per writing system."""
    return Counter(s for c in text if (s := script(c)) is not None)


def is_mixed(output: str, expected: set[str]) -> bool | None:
    """Whether `MIXED_SHARE` of its letters or more are of scripts that are not expected; None with few letters."""
    letters = scripts(output)
    total = sum(letters.values())
    if total < FEWEST_LETTERS or not expected:
        return None
    return sum(n for s, n in letters.items() if s not in expected) >= MIXED_SHARE * total


def has_broken_characters(output: str) -> bool:
    """Bytes that are no text: replacement characters (also cut ones are shown so), control characters.

    One replacement character at the very end is a character that the length limit cut.
    """
    body = output[:-1] if output.endswith("�") else output
    return "�" in body or any(unicodedata.category(c) == "Cc" and c not in "\n\r\t\f\v" for c in body)


def has_unbalanced_brackets(prompt: str, output: str, *, cut: bool | None) -> bool | None:
    """A bracket closes none or another one, or is left open in a text that was not cut; None without brackets.

    Brackets that the prompt opened may be closed. The bracket of a list mark ("1)") may close none; smileys are none.
    """
    clean = SMILEY.sub(" ", output)
    if not any(c in PAIRS or c in PAIRS.values() for c in clean):
        return None
    opened, _ = _scan(prompt, [])
    inherited = len(opened)
    left, wrong = _scan(clean, opened)
    return wrong or (len(left) > inherited and cut is False)


def _scan(text: str, opened: list[str]) -> tuple[list[str], bool]:
    """Brackets that are open after the text, and whether one closed none or another one."""
    stack, wrong = list(opened), False
    marks = {m.end() - 1 for m in LIST_MARK.finditer(text)}
    for place, c in enumerate(text):
        if c in PAIRS.values():
            stack.append(c)
        elif c in PAIRS:
            if stack and stack[-1] == PAIRS[c]:
                stack.pop()
            elif place not in marks:
                wrong = True
    return stack, wrong


def is_broken_python(prompt: str, output: str, *, cut: bool | None) -> bool | None:
    """Whether the code can never parse: a fenced block, or the prompt continued by the output.

    Code that only breaks off is wrong where nothing cut it. None where the prompt is no Python itself.
    """
    block = FENCE.search(output)
    if block and block.group(1).lower() in ("", "py", "python", "python3"):
        state = _parses(block.group(2))
        return state == "wrong" or (state == "open" and cut is False)
    if prompt and _parses(prompt) == "wrong":
        return None
    state = _parses(prompt + output)
    return state == "wrong" or (state == "open" and cut is False)


def _parses(source: str) -> str:
    """`whole`, `open` (may be continued) or `wrong`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
        else:
            return "whole"
        try:
            return "open" if codeop.compile_command(source, symbol="exec") is None else "whole"
        except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
            return "open" if _breaks_off(source) else "wrong"


def _breaks_off(source: str) -> bool:
    """Whether only the last line is wrong, which was cut inside a word or an operator."""
    head, _, last = source.rstrip("\n").rpartition("\n")
    if not head or source.endswith("\n") or not last:
        return False
    try:
        codeop.compile_command(head + "\n", symbol="exec")
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return False
    return True


def is_broken_json(output: str) -> bool:
    """Whether the output (or its first fenced block) is no JSON document."""
    block = FENCE.search(output)
    try:
        json.loads(block.group(2) if block else output)
    except (ValueError, RecursionError):
        return True
    return False


def wrong_equations(prompt: str, output: str, *, cut: bool | None = None) -> tuple[int, list[str]]:
    """Equations between numbers that end inside the output: how many there are, and those that do not hold.

    Sums, differences, products and quotients with brackets; one that the prompt begins counts. A result with decimals
    holds if it is the rounded value. A number at the very end of a text that may have been cut is left out.
    """
    goes_on = re.search(r"[-+*/×÷=(]\s*$", prompt) or re.match(r"\s*[-+*/×÷=)]", output)
    prompt = prompt if goes_on else prompt + "\n"
    whole = prompt + output
    count, wrong = 0, []
    for match in EQUATION.finditer(whole):
        at_the_end = match.end() >= len(whole.rstrip()) and cut is not False and len(whole) == len(whole.rstrip())
        if match.end() <= len(prompt) or at_the_end:
            continue
        value = _value(match.group("left"))
        if value is None:
            continue
        count += 1
        if not _holds(value, match.group("right")):
            wrong.append(" ".join(match.group(0).split()))
    return count, wrong


def _value(expression: str) -> Fraction | None:
    text = expression.replace("×", "*").replace("÷", "/").replace(",", "")
    text = re.sub(r"(?<![\d.])0+(?=\d)", "", " ".join(text.split()))
    try:
        return _fold(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _fold(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return Fraction(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_fold(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)](_fold(node.left), _fold(node.right))
    raise ValueError


def _holds(value: Fraction, shown: str) -> bool:
    digits = len(shown.partition(".")[2])
    return abs(value - Fraction(shown.replace(",", ""))) <= (Fraction(1, 2 * 10**digits) if digits else 0)
