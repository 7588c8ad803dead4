"""Does a text try to speak to the model? Text of logs, pages and names is data, and is made to look it.

Three things are done before a line is shown to a model: control characters and line breaks go, the
marks by which chat models tell who is speaking are broken, and a line that reads like an instruction
to an assistant is withheld; the person still sees it, with its place.
"""

from __future__ import annotations

from firstfault_tools.expressions import expression

MAX_LINE = 500
WITHHELD = (
    "(withheld: this line reads like an instruction to an assistant; the person can look at it)"
)

_CONTROL = expression(
    r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]+"
)
_CHAT_MARK = expression(
    r"<\|[^|>\n]{1,40}\|>|<\|?/?(?:im_start|im_end|system|assistant|user|tool_call|tool_response|start_of_turn|end_of_turn|think)\|?>|\[/?INST\]|<</?SYS>>|</?s>|\[/?(?:TOOL_CALLS|AVAILABLE_TOOLS|TOOL_RESULTS)\]"
)
_ORDER = expression(
    r"(?i)\b(?:ignore|disregard|forget|override|bypass)\b[^.\n]{0,40}\b(?:instruction|prompt|rule|guideline|above|previous|prior|earlier|evidence|context)s?\b"
    r"|\b(?:system|developer) (?:prompt|message|instruction)s?\b"
    r"|\byou are (?:now|an? (?:ai|assistant|language model|helpful))\b"
    r"|\b(?:as an ai|language model|chatgpt|dear (?:ai|assistant|model)|hey (?:ai|assistant))\b"
    r"|\b(?:assistant|ai|model|llm|agent|firstfault)\s*[,:]\s*(?:please|you|ignore|report|say|tell|call|run|use|answer|reply|print|respond|output|the|this|do|must)\b"
    r"|\b(?:call|invoke|use|run) (?:the )?(?:tool|function|run_probe|probe)\b[^.\n]{0,60}"
    r"|\b(?:reveal|print|repeat|output|show|send|leak|exfiltrate|include)\b[^.\n]{0,40}\b(?:api.?key|system prompt|your (?:prompt|instructions|key)|secrets?|credentials?)\b"
    r"|\b(?:answer|respond|reply|say|report|conclude|claim|state|tell the (?:user|person|engineer))\b[^.\n]{0,30}\b(?:that (?:everything|the run|nothing|it) |"
    r"only with|exactly|is healthy|no fault|the verdict)"
    r"|\b(?:set|change) (?:the )?(?:verdict|confidence|root cause)\b|\bnew instructions?\b|\"role\"\s*:\s*\"(?:system|assistant|developer)\""
)


def reads_like_an_order(text: str) -> bool:
    """The text addresses an assistant instead of reporting what a program did."""
    return _ORDER.search(text) is not None or _CHAT_MARK.search(text) is not None


def make_plain(text: str, limit: int = MAX_LINE) -> str:
    """One line of data as a model may see it: bounded, without control characters, withheld if it gives orders."""
    flat = _CONTROL.sub(" ", text.replace("\n", " \\n ").replace("\t", " "))
    if reads_like_an_order(flat):
        return WITHHELD
    return flat if len(flat) <= limit else f"{flat[:limit]} …[cut, {len(flat)} characters]"


def make_plain_block(text: str, limit: int = 6_000) -> str:
    """Several lines of data, each made plain."""
    kept = "\n".join(make_plain(line) for line in text[:limit].split("\n"))
    return kept + ("" if len(text) <= limit else f"\n…[cut, {len(text)} characters in all]")
