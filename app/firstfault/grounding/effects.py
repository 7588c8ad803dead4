"""What does a command do to the system it runs on, and may a model propose it?

Only commands whose every part is known to read are called read-only; the rest says what it does, or
that one should look first. What a model proposes may only look, and some programs that read in the
forms of our pages can do more: of those only the forms that look are let through.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache
from pathlib import Path

from firstfault_tools.expressions import expression


class Effect(StrEnum):
    """What running a command does."""

    READS = "read-only"
    LOADS = "puts load on the hardware"
    STARTS = "starts the job"
    CHANGES = "changes state"
    CODE = "code to put in"
    SETTING = "settings to change"
    UNCLEAR = "read it before you run it"


_STARTS = expression(
    r"\b(?:rerun|torchrun|deepspeed|accelerate launch|mpirun|sbatch|train\w*\.py|ray (?:start|job submit))\b"
)
_LOOKED_FOR = expression(r"\b(?:pgrep|pidof|grep|ps)\b[^;|&)\n]*")
"""Programs that are only looked for start nothing."""

_LOADS = expression(
    r"\b(?:ib_(?:write|read|send)_\w+|\w+_perf|dcgmi diag|firstfault probe|stress)\b"
)
_CHANGES = expression(
    r"(?:^|[;&|]\s*|sudo\s+)(?:rm|mv|kill|pkill|reboot|shutdown|modprobe|rmmod|chmod|chown|umount|mkfs)\b"
    r"|systemctl (?:(?:re)?(?:start|stop|load|enable|disable)|reboot|poweroff)|systemctl restart|service \w+ restart"
    r"|nvidia-smi\b[^;|&]*(?:\s-r\b|--gpu-reset|\s-pm\b|\s-lgc\b|\s-pl\b|\s-e\s)"
    r"|\bsysctl -w\b|\bmount -o\b|\bscontrol (?:update|requeue|reboot)|\bscancel\b"
    r"|\bkubectl (?:delete|drain|cordon|apply|scale|patch|edit)|\bdocker (?:run|rm|restart)"
    r"|\b(?:pip|uv|apt|apt-get|yum|dnf|conda)\s+(?:pip\s+)?(?:install|upgrade|remove)|\bgit lfs pull"
    r"|(?<![<2&])>(?!\s*/dev/null|&)\s*[\w/~.]"
)
_CODE = expression(
    r"^\s*(?:import |from \w+ import |\w+ = |@|def |with |if |for |dist\.|torch\.|model\.)"
)
_SETTING = expression(r"(?:\s*#[^\n]*\n)*\s*(?:--[\w-]+|(?:export|unset) [A-Z_]+[^;|&]*$)")
_PYTHON_BLOCK = expression(r"^\s*(?:for|if|with|while|def|class) [^;\n]{1,200}:(?:\s|$)")
"""A loop or branch of Python; one of the shell has no colon at its end."""
_READING_PYTHON = expression(r"^python3?\s+-(?:c|m)\s")


_BLANK = expression(r"<[a-z](?:[\w -]{0,30}\w)?>")
"""A place to fill in, as pages write it (`<pid>`): nothing is read from or written to there."""
_READS_AS = {
    "mount": expression(r"^(?:sudo\s+)?mount(?:\s+-l)?(?:\s+-t\s+[\w,]+)?$"),
    "ldconfig": expression(r"^ldconfig\s+-p$"),
}
"""Programs that only read in one form and change the system in others."""


@cache
def reading_commands() -> frozenset[str]:
    """Programs that only read, at least in the forms that our pages show."""
    return frozenset(Path(__file__).with_name("reading_commands.txt").read_text("utf-8").split())


def judge_command(command: str, changes_state: bool = False) -> Effect:
    """Effect of a command. changes_state: its page says that it changes something."""
    command = _BLANK.sub("X", command)
    if changes_state or _CHANGES.search(command):
        return Effect.CHANGES
    if _PYTHON_BLOCK.match(command):
        return Effect.CODE
    if _SETTING.match(command):
        return Effect.SETTING
    if _STARTS.search(_LOOKED_FOR.sub("", command)):
        return Effect.STARTS
    if _LOADS.search(command):
        return Effect.LOADS
    parts = [p.strip() for p in re.split(r"&&|\|\||[;|\n]", _unquote(command)) if p.strip()]
    words = [_program(part) for part in parts]
    if words and all(_reads(p, w) for p, w in zip(parts, words, strict=True)):
        python = [p for p, w in zip(parts, words, strict=True) if w.startswith("python")]
        if all(_READING_PYTHON.match(p) for p in python):
            return Effect.READS
    if _CODE.match(command):
        return Effect.CODE
    return Effect.UNCLEAR


def split_look(command: str) -> tuple[str, str]:
    """(what is looked at first, what is done then): leading lines that only read apart from lines below that change
    something, so that nobody pastes both at once; ('', command) where there is no such pair."""
    lines = command.split("\n")
    looks = 0
    while looks < len(lines) and judge_command(lines[looks]) is Effect.READS and not lines[looks].endswith("\\"):  # fmt: skip
        looks += 1
    rest = lines[looks:]
    if not looks or not any(judge_command(x) is Effect.CHANGES for x in rest):
        return "", command
    return "\n".join(lines[:looks]), "\n".join(rest)


def only_looks(command: str, changes_state: bool) -> bool:
    """A fix changes something (its page says so), and the command shown with it is only the look before that."""
    return changes_state and may_propose(command)


def _reads(part: str, program: str) -> bool:
    form = _READS_AS.get(program)
    if form is not None:
        return form.match(part) is not None
    return program in reading_commands() or not program or _ASKS_VERSION.match(part) is not None


_LOOKING = {
    "kubectl": expression(r"^kubectl\s+(?:-n \S+\s+)?(?:get|describe|logs|top)\b"),
    "systemctl": expression(r"^systemctl\s+(?:status|show|list-\w+|is-active|cat)\b"),
    "scontrol": expression(r"^scontrol\s+show\b"),
    "ip": expression(
        r"^ip\s+(?:-\w+\s+)*(?:a|addr|address|l|link|r|route|rule|neigh)(?:\s+(?:show|list|ls)\b.*)?$"
    ),
    "iptables": expression(r"^iptables\s+-(?:L|S)"),
    "ipmitool": expression(r"^ipmitool\s+(?:sel (?:list|elist|info)|sdr|sensor|chassis status)\b"),
    "ethtool": expression(r"^ethtool\s+(?:-[SkgiamTn]\s+)?[\w.]+$"),
    "dmesg": expression(r"^dmesg(?!.*\s-(?:\w*[cCDEn]|-clear|-console))"),
    "journalctl": expression(r"^journalctl(?!.*--(?:vacuum|rotate|flush|sync))"),
    "find": expression(r"^find(?!.*\s-(?:delete|exec\w*|ok\w*|fprint\w*|fls))"),
    "sed": expression(r"^sed\s+-n\s+\S+(?!.*\s-i)"),
    "dcgmi": expression(r"^dcgmi\s+(?:health -c|discovery|stats|topo|nvlink)\b"),
    "ping": expression(r"^ping\s+-c\s*\d{1,3}\b"),
    "perfquery": expression(r"^perfquery(?!.*\s-\w*[rR])"),
    "firstfault": expression(
        r"^firstfault\s+(?:diagnose|compare|triage|memory|bubble|search|doctor)\b"
    ),
    "ray": expression(r"^ray\s+(?:status|list|summary|memory)\b"),
    "hostname": expression(r"^hostname(?:\s+-\w+)?$"),
    "ulimit": expression(r"^ulimit(?:\s+-\w+)?$"),
    "quota": expression(r"^quota(?:\s+-\w+)?(?:\s+\w+)?$"),
    "nvidia-smi": expression(
        r"^nvidia-smi(?:\s+(?:-q|-L|-i \S+|-d \S+|topo|nvlink|dmon|pmon|-[mscei]+|-lms \d+|-l \d+|-f \S+|--query\S*|--format\S*|-\w \d+|Q))*$"
    ),
    "py-spy": expression(r"^py-spy\s+(?:dump|top)\b"),
    "lfs": expression(r"^lfs\s+(?:df|getstripe|quota|check)\b"),
}
_ASKS_VERSION = expression(
    r"^(?:[a-z][\w.-]{1,40} (?:--version|-V|--help)|(?:pip|pip3|uv pip|conda) (?:show|list|freeze)(?: [\w.-]+)*|modinfo \w+|"
    r"rpm -qa?(?: [\w.-]+)?|dpkg -l(?: [\w.-]+)?|fi_info(?: -[ptl](?: \w+)?)*)$"
)
_NEVER_LOOKING = frozenset(("bash", "sh", "python", "python3", "ssh", "xargs", "srun", "awk", "env", "nc", "do", "done", "for"))  # fmt: skip
_SUBSHELL = expression(r"\$\(|`|<\(|>|\n")
_RUN = r"(?:^|[;&|(]\s*|\b(?:run|do|then|and|sudo|try|with)\s+|`)(?:sudo\s+)?"
_DESTROYING_WORDS = expression(
    _RUN + r"(?:rm|mv|dd|mkfs\S*|shred|truncate|kill|pkill|killall|curl|wget)\s+[-~/\w.$]"
    r"|\brm -[rf]|\bfind\b[^\n]{0,80}-(?:delete|exec)|\bshutil\.rmtree|\bos\.(?:remove|unlink|system|kill)"
    r"|\bgit (?:reset|clean|push|checkout)\b"
)
_CHANGING_WORDS = expression(
    _RUN + r"(?:modprobe|rmmod|chmod|chown|umount)\s+[-~/\w.$]"
    "|"
    + _RUN
    + r"(?:reboot|shutdown|poweroff)(?:\s+(?:-|now\b|\+\d|the\b|it\b|this\b)|\s*[.;,]|\s*$)"
    r"|\bsystemctl (?:re)?(?:start|stop|load|enable|disable)\b|\bservice \w+ restart|nvidia-smi\b[^;|&\n]{0,60}(?:\s-r\b|--gpu-reset|\s-pm\b|\s-lgc\b|\s-pl\b)"
    r"|\bsysctl -w\b|\bmount -o\b|\bscontrol (?:update|requeue|reboot)|\bscancel\b|\bkubectl (?:delete|drain|cordon|apply|scale|patch|edit)"
    r"|\bdocker (?:run|rm|restart|kill|system)\s+[-\w./]"
    r"|\b(?:pip3?|uv|apt|apt-get|yum|dnf|conda)\s+(?:pip\s+)?(?:install|upgrade|remove|uninstall)"
)
_TELLS = r"(?i)(?:^|[.;:,]\s+|\b(?:and|then|to|please|should|must|could|can|now|first)\s+)"
_THINGS = (
    r"(?:(?:the|all|this|that|your|its|every|any|old|whole|of|latest|last|broken|\w+'s)\s+){0,3}(?:\w+\s+)?"
    r"(?:checkpoints?|folders?|director\w+|data(?:sets?)?|volumes?|disks?|nodes?|gpus?|hosts?|machines?|drivers?|databases?|cluster|home|everything)\b"
)
_DESTROYS = expression(
    _TELLS
    + r"(?:delete|wipe|erase|format|reformat|overwrite|truncate|remove|kill|purge)\s+"
    + _THINGS
)
_CHANGES_THINGS = expression(_TELLS + r"(?:reboot|power-?cycle|reset)\s+" + _THINGS)


def may_propose(command: str) -> bool:
    """The command does nothing but look, in the form in which it stands."""
    text = " ".join(command.split())
    if _ASKS_VERSION.match(text):
        return True
    if not text or _SUBSHELL.search(command) or judge_command(command) is not Effect.READS:
        return False
    for part in re.split(r"&&|\|\||[;|]", _unquote(text)):
        part = part.strip().removeprefix("sudo ").strip()
        program = _program(part)
        if program in _NEVER_LOOKING:
            return False
        form = _LOOKING.get(program)
        if form is not None and form.search(part[part.index(program) :]) is None:
            return False
    return True


def tells_to_change(text: str) -> bool:
    """A sentence that tells to change or destroy something on the machines."""
    told = _CHANGING_WORDS.search(text) or _CHANGES_THINGS.search(text)
    return told is not None or tells_to_destroy(text)


def tells_to_destroy(text: str) -> bool:
    """A sentence that tells to do what cannot be undone, or to run what comes from elsewhere."""
    return _DESTROYING_WORDS.search(text) is not None or _DESTROYS.search(text) is not None


def _unquote(command: str) -> str:
    return re.sub(r"'[^']*'|\"[^\"]*\"", "Q", command)


def _program(part: str) -> str:
    words = [w for w in part.split() if not re.fullmatch(r"[A-Z_][A-Z0-9_]{0,80}=\S*", w)]
    words = [w for w in words if w not in ("sudo", "time", "do", "then")]
    return words[0].split("/")[-1] if words else ""
