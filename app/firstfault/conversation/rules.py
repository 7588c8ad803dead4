"""How is a message answered without a model? Read once, given to the one tool it is for, answered.

The only door: `firstfault ask`, the page's box, MCP and a question above a log come through here. What
nothing covers is said in one line, with what can be asked instead; no passage is shown on the strength
of a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import cache

from firstfault.conversation.answerer import Question
from firstfault.conversation.asked import Asked, Family, read_asked, read_continued
from firstfault.conversation.board import Board, lay_board, move_phases, say_board, show_walk
from firstfault.conversation.branches import read_refuted, suggest_now, tell_branch
from firstfault.conversation.calculations import calculate
from firstfault.conversation.declining import (
    CAN,
    SUGGESTED,
    chips_for,
    decline,
    define_or_none,
    say_lacking,
)
from firstfault.conversation.evidence_lines import answer_words
from firstfault.conversation.facts import Facts
from firstfault.conversation.follow_up import put_in_full
from firstfault.conversation.halves import split_parts, without_repeats
from firstfault.conversation.incident import answer_from_incident, suggest
from firstfault.conversation.incident_facts import answer_fact, asks_first, asks_worded
from firstfault.conversation.missing import say_missing
from firstfault.conversation.page_search import names_field
from firstfault.conversation.pages import PageSearch, PassageSearch, answer_from_pages
from firstfault.conversation.probe_request import read_probe_request, say_command
from firstfault.conversation.reply import Reply
from firstfault.conversation.rulings import Meant, is_told_plainly, nearest_intent
from firstfault.conversation.run_answers import at_time, tell_before_stop
from firstfault.conversation.running import answer_running
from firstfault.conversation.searches import (
    asks_of_people,
    is_of_incident,
    tell_absent,
    tell_lines,
    tell_normal,
)
from firstfault.conversation.sources import Sources
from firstfault.conversation.speech import find_speech, say_in
from firstfault.conversation.statements import Moved, reply_to_statement
from firstfault.conversation.telling import Telling
from firstfault.conversation.triage_tree import reply_to_walk, walk_tree
from firstfault.conversation.walk import (
    Said,
    Walk,
    follow,
    is_move,
    read_turn,
    take,
)
from firstfault.incidents.events import AnswerPart
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.investigation.knowledge import Knowledge
from firstfault.knowledge_base.search import Found, SearchIndex, open_index
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Category, Verdict

NO_MODEL = "/preview, /send, /approve and /reject are for a model or a probe; none is set or waits here (docs/model.md)."


@cache
def _index() -> SearchIndex:
    return open_index(vectors=False)


def search_lexically(query: str, limit: int) -> Sequence[Found]:
    """Passages by shared words; needs no vectors."""
    return _index().search(query, limit)


@dataclass(frozen=True)
class RuleAnswerer:
    """Answers by rule; the same question on the same evidence gives the same answer."""

    search: PassageSearch = field(default=search_lexically)
    repeatable: bool = True
    explains: bool = False

    def explain(self, question: Question) -> Iterator[AnswerPart]:
        """The answer to what was asked with the evidence; nothing where it was only described."""
        if question.diagnosis is None or not question.text.strip():
            return
        asked = read_asked(question.text, True)
        if asked.intent in ("answer", "find", "thanks", "greeting") or not asked.is_question:
            return
        part = self._answer(question, asked)
        if part.kind.startswith(("knowledge.", "none")) and not _asks_pages(asked):
            # what came with the evidence is asked of it: a page in general is no answer
            sources = Sources()
            told = answer_from_incident(question, question.diagnosis, replace(asked, intent="why"), sources)  # fmt: skip
            part = told.part(sources) if told is not None else part
        yield put_in_language(part, question)

    def answer(self, question: Question) -> Iterator[AnswerPart]:
        """One part: the answer, its quotes, what to ask next, and where the investigation stands."""
        has_incident = question.diagnosis is not None
        said = [e.question for e in question.earlier]
        asked = read_continued(question.text, said, has_incident)
        if asked is None and not has_incident:
            question = replace(question, text=put_in_full(question.text, said))
        asked = asked or read_turn(question.text, has_incident, not said)
        parts = split_parts(asked.text) if has_incident else [question.text]
        part = self._answer_parts(question, asked, parts) or self._answer(question, asked)
        yield put_in_language(part, question)

    def _answer_parts(
        self, question: Question, whole: Asked, parts: Sequence[str]
    ) -> AnswerPart | None:
        """The answers to the parts of one message below each other; None where it is a single question."""
        if len(parts) < 2 or whole.family in (Family.CALCULATOR, Family.COURTESY):
            return None
        meant = self._nearest(whole.text)
        if meant.intent in _WHOLE and meant.is_sure(ABOUT):
            return None
        sources = Sources()
        before, walk = _walk(question, whole)
        board = lay_board(question.diagnosis, walk, question.knowledge)
        walk = move_phases(walk, board)
        halves = _join_told(parts)

        def reply_to(asked: Asked, sources: Sources) -> Reply:
            part = replace(question, text=asked.text)
            return self._reply(part, asked, sources, before, walk, board)

        tried = [(asked, reply_to(asked, Sources())) for asked in halves]
        told_by = [(a, r) for a, r in tried if r.kind not in ("none", "incident.lines", "walk.answer")]  # fmt: skip
        if any(r.kind.startswith("incident.") for _, r in told_by):
            told_by = [
                (a, r) for a, r in told_by if not r.kind.startswith("knowledge.") or _asks_pages(a)
            ]
            told_by = [(a, r) for a, r in told_by if r.kind not in ("walk.fixed", "walk.came_back")]
        told_by = [(a, r) for a, r in told_by if not r.text.startswith(_EMPTY_HANDED)] or told_by
        once = {r.kind: a for a, r in reversed(told_by)}
        told_by = [(a, r) for a, r in told_by if r.kind not in _ONCE or once[r.kind] is a]
        if len({r.text for _, r in told_by}) < 2 and (
            len(told_by) != 1 or whole.family is Family.INCIDENT
        ):
            return None
        told = [
            reply_to(asked, sources) for asked, _ in told_by
        ]  # numbered again: only what is shown is cited
        text = "\n\n".join(without_repeats([r.text for r in told]))
        reply = replace(told[0], text=text, tool=next((r.tool for r in told if r.tool), None))
        return replace(reply.part(sources), walk=show_walk(walk, board, question.diagnosis))

    def _answer(self, question: Question, asked: Asked) -> AnswerPart:
        sources = Sources()
        before, walk = _walk(question, asked)
        board = lay_board(question.diagnosis, walk, question.knowledge)
        walk = move_phases(walk, board)
        reply = self._reply(question, asked, sources, before, walk, board)
        if question.diagnosis is None and not walk.statements:
            return reply.part(sources)
        if question.diagnosis is not None and not reply.kind.startswith("walk."):
            reply = replace(
                reply, suggestions=suggest_now(question, question.diagnosis, reply.kind, walk)
            )
        return replace(reply.part(sources), walk=show_walk(walk, board, question.diagnosis))

    def _reply(
        self, question: Question, asked: Asked, sources: Sources, before: Walk, walk: Walk, board: Board
    ) -> Reply:  # fmt: skip
        if (request := read_probe_request(question.text)) is not None:
            return say_command(request)
        if question.diagnosis is None and asked.family is not Family.CALCULATOR:
            general = self._reply_generally(question, asked, sources)
            if general is not None:
                return general
        if question.diagnosis is not None and (told := tell_branch(question, question.diagnosis, sources, before, walk)):  # fmt: skip
            return Reply(told, "incident.branch", suggest(question.diagnosis, ""))
        if asked.family is Family.COURTESY:
            return _courtesy(asked, question.diagnosis)
        if asked.family is Family.CALCULATOR:
            counted = calculate(asked)
            lacks = say_missing(asked.text) if counted.tool is None else ""
            return Reply(lacks, "none.missing", SUGGESTED) if lacks else counted
        if asked.family is Family.RUNNING:
            return _capture(question, asked, sources)
        if _is_name(asked, walk) and (lines := answer_words(question, sources)):
            return Reply(lines, "incident.lines", chips_for(question.diagnosis))
        if told := say_missing(asked.text, True):
            return Reply(told, "none.missing", chips_for(question.diagnosis))
        sure = False
        if question.diagnosis is not None:
            asked, sure = self._means(asked)
        if is_move(asked):
            old = lay_board(question.diagnosis, before, question.knowledge)
            moved = Moved(asked, question.diagnosis, old, board, walk, sources)
            return reply_to_statement(moved)
        found: Reply | None = None
        if question.diagnosis is not None and not sure and _may_be_fact(asked):
            fact = answer_fact(question, question.diagnosis, asked, sources)
            if fact is not None:
                return Reply(fact[1], f"incident.{fact[0]}", suggest(question.diagnosis, fact[0]))
        if question.diagnosis is not None and asked.intent == "how_to" and _HOW_TO_IT.match(asked.text):  # fmt: skip
            asked = replace(asked, intent="fix", family=Family.INCIDENT)
        if asked.family is Family.INCIDENT and question.diagnosis is not None:
            if asked.intent == "board":
                return Reply(
                    say_board(board), "incident.board", suggest(question.diagnosis, "board")
                )
            found = answer_from_incident(question, question.diagnosis, asked, sources)
        return found or self._look_up(question, asked, sources)

    def _means(self, asked: Asked) -> tuple[Asked, bool]:
        """(a question that no phrase tells, read as the way of asking about an incident that is nearest to it; nothing else can be meant)."""
        if asked.family not in (Family.KNOWLEDGE, Family.INCIDENT) and asked.intent not in _LOOSE:
            return asked, False
        meant = self._nearest(asked.text)
        if asks_worded(asked.text) and not meant.is_sure(SURE):
            return asked, False
        of_run = _OF_THIS_RUN.search(asked.text) is not None
        if asked.family is Family.INCIDENT and asked.intent not in _LOOSE:
            which = meant.intent == "suspect" and _ASKS_WHICH.match(asked.text) is not None
            taken = meant.intent in _DIRECT and meant.is_sure(SURE) and not which
        elif asked.intent == "answer":
            taken = meant.intent in _TOLD and meant.is_sure(ABOUT)
        elif asked.intent == "rank":
            taken = meant.intent == "suspect" and meant.is_sure(ABOUT_RANK, BEHIND)
        elif asked.intent in _OF_ADVICE:
            taken = meant.is_sure(ABOUT)
        else:
            taken = meant.is_sure(ABOUT) or (of_run and meant.is_sure(ABOUT_RUN, BEHIND))
        if not taken:
            return asked, False
        return replace(
            asked, intent=meant.intent, family=Family.INCIDENT
        ), meant.intent in _DIRECT and meant.is_sure(ABOUT)

    def _nearest(self, text: str) -> Meant:
        return nearest_intent(PageSearch(self.search).near_questions(text))

    def _reply_generally(self, question: Question, asked: Asked, sources: Sources) -> Reply | None:
        """Without an incident: a plain answer that holds what is asked, whatever its wording suggests; else the tree."""
        near = PageSearch(self.search).near_questions(asked.text) if asked.is_question else {}
        if is_told_plainly(asked, near):
            return self._look_up(question, replace(asked, family=Family.KNOWLEDGE), sources, True)
        if asked.family is Family.RUNNING:
            return None
        place = walk_tree([*(e.question for e in question.earlier), question.text])
        return reply_to_walk(place, question.knowledge, sources) if place is not None else None

    def _look_up(
        self, question: Question, asked: Asked, sources: Sources, plain: bool = False
    ) -> Reply:
        """Pages first; then the lines of the evidence that hold the question's names. plain: an answer is known to be there."""
        if not plain and (lacking := say_lacking(question, asked)) is not None:
            return lacking
        if question.diagnosis is not None and (_asks_why(asked) or _asks_why_slow(asked, question.diagnosis)):  # fmt: skip
            told = answer_from_incident(question, question.diagnosis, replace(asked, intent="why"), sources)  # fmt: skip
            if told is not None:
                return told
        if question.diagnosis is not None and _names_the_run(asked):
            facts = Facts(question, question.diagnosis, sources, asked)
            return Reply(f"{facts.cause} {facts.main}.", "incident.why", suggest(question.diagnosis, "why"))  # fmt: skip
        if question.diagnosis is not None and _OF_THIS_RUN.search(asked.text) and asked.intent in _TOLD_BY_LINES:  # fmt: skip
            lines = tell_lines(Facts(question, question.diagnosis, sources, asked))
            if lines:
                return Reply(lines, "incident.told", suggest(question.diagnosis, ""))
        found = answer_from_pages(
            asked,
            question.knowledge,
            PageSearch(self.search),
            sources,
            question.diagnosis is not None,
            (question.diagnosis.host or "") if question.diagnosis is not None else "",
            question.diagnosis is not None
            and asked.intent not in _OF_ADVICE
            and _OF_THIS_RUN.search(asked.text) is not None,
        )
        if found is not None:
            return found
        if question.diagnosis is None:
            return define_or_none(asked) or decline(asked, None)
        return _say_what_is_known(question, question.diagnosis, asked, sources)


SURE, ABOUT, ABOUT_RUN, ABOUT_RANK, BEHIND = 0.935, 0.90, 0.87, 0.875, 0.02
"""Cosine from which a question is meant so whatever its words, and from which it is about the incident at hand; less is enough where it speaks of the run ("did we", "it") or names
a rank; and how much nearer a plain answer may then be. Chosen on evals/questions/opened*."""
_DIRECT = frozenset(["suspect", "restart", "cost", "only", "changes", "checkpoint", "lost_steps", "timeline", "manager", "disproof", "stop_now", "leave_alone"])  # fmt: skip
"""Ways of asking that no single fact of a line answers better."""
_ASKS_WHICH = re.compile(r"(?i)\W{0,8}(?:and |so )?(?:which|where|who)\b")
"""No answer of yes or no is one to it."""
_WHOLE = frozenset(["only", "changes", "timeline"])
"""Ways of asking that a whole message puts, whatever its parts look like."""
_TOLD = frozenset(["timeline", "manager", "ticket", "whys", "newcomer", "next"])
"""What is asked for without a word that asks ("put the events in order")."""
_LOOSE = frozenset(["answer", "rank"])
"""Readings by a word alone, which a whole sentence that is near to another way of asking overrules."""
_ONCE = frozenset({"incident.absent", "incident.restart", "incident.why", "incident.next"})
"""Answers to the incident as a whole: a second one to another half of the message says the same with other words."""
_EMPTY_HANDED = ("The evidence singles out no", "The log does not show that: none of")
"""Beginnings of an answer to one part that adds nothing where another part was answered."""
_ASKS_GENERALLY = re.compile(r"(?i)\b(?:what|which|why|how|when|who|where|should|can|does|do)\b")
FRAGMENT = 4
"""Words of a part of a question up to which, without a word that asks, it only adds to the part about the run."""
_ASKS_MEANING = re.compile(
    r"(?i)\bmeans?\b|\bmeaning\b|^\W*(?:and |so )?what(?:.s| is| are) (?!the\b|our\b|it\b|this\b|that\b)"
)


def _asks_pages(asked: Asked) -> bool:
    """A part of a message about a run that asks for practice or for the meaning of a term, which a page answers."""
    if asked.intent in _OF_ADVICE:
        return not _is_fragment(asked)
    return asked.intent == "what_is" and _ASKS_MEANING.search(asked.text) is not None


def _is_fragment(asked: Asked) -> bool:
    """A few words behind a question about the run ("batch too big?"): no question on the subject in general."""
    return len(asked.text.split()) <= FRAGMENT and _ASKS_GENERALLY.search(asked.text) is None


def put_in_language(part: AnswerPart, question: Question) -> AnswerPart:
    """The answer with what can be said of it in the language of the question; unchanged for English."""
    speech = find_speech(question.text)
    if speech is None or part.kind.startswith("walk"):
        return part
    if part.kind == "none":
        return replace(part, text=speech.says["declined"])
    if part.kind == "none.missing":
        return replace(
            part, text=f"{speech.says['missing']} {speech.says['english']}\n\n{part.text}"
        )
    place = question.diagnosis.place if question.diagnosis is not None else ""
    return replace(part, text=say_in(speech, part.text, part.kind, place))


_OF_A_PLACE = re.compile(r"(?i)\b(?:step|iteration|rank|line)[ _#]?\d+\b")
"""Said before a question, it tells where in the log the question looks."""


def _join_told(parts: Sequence[str]) -> list[Asked]:
    """Readings of the parts; what is only told, and moves nothing, belongs to the question behind it."""
    out: list[Asked] = []
    told = ""
    for number, text in enumerate(parts, 1):
        asked = read_asked(f"{told} {text}".strip(), True)
        is_setting = asked.intent == "answer" and _OF_A_PLACE.search(text) is not None
        if number < len(parts) and not asked.is_question and (is_setting or not is_move(asked)):
            told = asked.text
            continue
        told = ""
        out.append(asked)
    return out


def _capture(question: Question, asked: Asked, sources: Sources) -> Reply:
    """What to collect from a live run; where a suspect is known, there first."""
    context = " ".join(a for a in question.artefacts)
    reply = answer_running(asked.text, context)
    d = question.diagnosis
    if d is None or d.verdict is not Verdict.FAULT:
        return reply
    if d.category is Category.NUMERICAL and (
        told := tell_before_stop(Telling(question, d, sources, asked))
    ):
        return replace(reply, text=told)
    if not d.place:
        return reply
    facts = Facts(question, d, sources, asked)
    lead = f"First at {d.place}, where it began {facts.main}: its stacks and those of its workers, then all other ranks. "
    return replace(reply, text=lead + reply.text)


def _say_what_is_known(
    question: Question, diagnosis: Diagnosis, asked: Asked, sources: Sources
) -> Reply:
    """No tool answers it: the lines that hold nearly all it speaks of, else that the log does not show it."""
    facts = Facts(question, diagnosis, sources, asked)
    lines = answer_words(question, sources) or tell_lines(facts)
    if not lines and asked.intent == "normal":
        return Reply(tell_normal(facts), "incident.normal", suggest(diagnosis, ""))
    if not lines and re.match(r"(?i)\W{0,20}(?:and |but |so )?why\b", asked.text):
        told = answer_from_incident(question, diagnosis, replace(asked, intent="why"), sources)
        if told is not None:
            return told
    if not lines and not is_of_incident(facts) and not names_field(question.text):
        return decline(asked, diagnosis)
    if not lines:
        return Reply(tell_absent(facts), "incident.absent", suggest(diagnosis, ""))
    text = f"{lines}\n\nWhat the evidence shows as a whole: {facts.cause}{at_time(facts)} {facts.main}."
    return Reply(text, "incident.lines", suggest(diagnosis, ""))


_HOW_TO_IT = re.compile(
    r"(?i)\W{0,20}(?:and |so |ok,? )?how (?:do|can|should|to)\b(?: (?:i|we))?\s(?:\w{1,30} ){1,3}(?:it|this|that)\W{0,20}$"
)
"""How to do something about what the incident shows."""
_OF_ADVICE = frozenset(["should", "how_to", "what_do"])
"""Ways of asking for practice, which a page answers also where an incident is at hand."""
_TOLD_BY_LINES = frozenset(["how_much", "find", "which", "what_is", "should", "normal"])
_OF_THIS_RUN = re.compile(
    r"(?i)\b(?:our|my|we|us|did|was|were|it|he|they|this|that|here|had|has|the (?:pod|node|job|run|log|disk|host|rank|gpu|loss|file|worker|process)|what \w+ed the)\b"
)
_OVERRIDDEN = frozenset(
    ["timeline", "affected", "fact", "health", "why", "host", "first_line", "fix", "rank", "words", "collect", "suspect", "restart"]
)  # fmt: skip
"""Ways of asking about an incident that a single fact answers more directly where one is asked for."""
SHORT = 6
_KEEPS = re.compile(
    r"(?i)\b(?:keep|go on|continue|using|usable|can (?:i|we)|replace|swap|drain|reboot|rma|take out|ok to|safe to)\b"
)
_EITHER_OR = re.compile(r"(?i)\b(?:is|was|are|were)\b[^?\n]{1,50} or ")
_ONE_FACT = re.compile(
    r"(?i)\bhow (?:much|many|long)|\bwhen\b|\bstep\b|\bdoing\b|\blast\b|\bbefore it\b"
)
_ACCOUNTS = frozenset(["manager", "ticket", "newcomer", "whys", "postmortem", "board", "tree"])


def _may_be_fact(asked: Asked) -> bool:
    """A question that one fact of the incident could answer."""
    if asked.intent == "answer" or (not asked.is_question and asked.family is Family.WALK):
        return False
    if asks_of_people(asked.text):
        return True
    if asked.intent not in _ACCOUNTS and asks_first(asked.text):
        return True
    if asked.intent in ("suspect", "rank") and _EITHER_OR.search(asked.text) is not None:
        return True
    if asked.intent == "rank" and _ONE_FACT.search(asked.text) is None:
        return False
    if asked.intent == "suspect":
        return _KEEPS.search(asked.text) is not None
    return asked.family is Family.KNOWLEDGE or asked.intent in _OVERRIDDEN


_OF_THE_RUN = re.compile(
    r"(?i)\b(?:the|this|that|our|my|it|we|they|here|run|job|rank|node)\b|"
    r"\bwhy (?:is|did|was|has|does|were|do|are) [\w.-]{0,40}[a-z][\w.-]{0,40}-?\d"
)
"""Speaks of the run at hand, or asks why of something by its name (a host, a rank)."""


def _asks_why(asked: Asked) -> bool:
    """Why something of the run at hand is as it is: the verdict is the reason that is known."""
    return asked.intent == "why_general" and _OF_THE_RUN.search(asked.text) is not None


_SLOW = re.compile(
    r"(?i)^\W*(?:and |so )?why\b.*\b(?:slow\w*|low|tflops?|mfu|throughput|utili[sz]ation|tokens?|only \d)"
)


def _asks_why_slow(asked: Asked, diagnosis: Diagnosis) -> bool:
    """Why it is slow, where the verdict is what makes it slow."""
    return diagnosis.category is Category.PERFORMANCE and _SLOW.search(asked.text) is not None


def _names_the_run(asked: Asked) -> bool:
    """A short "which" of the run at hand: the verdict names the thing."""
    return asked.intent == "which" and len(asked.text.split()) <= SHORT and re.match(r"(?i)\W{0,8}(?:and |so |but )?which\b", asked.text) is not None  # fmt: skip


def _is_name(asked: Asked, walk: Walk) -> bool:
    """A word or two of a log, pasted alone, rather than something that is told."""
    told = bool(walk.statements) and walk.statements[-1].option is not None
    return asked.intent == "answer" and not told and len(asked.text.split()) <= 2


def _walk(question: Question, asked: Asked) -> tuple[Walk, Walk]:
    """The state before the message, and after it."""
    refutes = read_refuted(question.diagnosis, question.knowledge.pages)
    said = [Said(e.question, e.time) for e in question.earlier]
    before = follow(question.diagnosis, said, refutes)
    return before, take(before, asked, question.time, refutes(question.text, before))


def _courtesy(asked: Asked, diagnosis: Diagnosis | None) -> Reply:
    if asked.intent == "command":
        return Reply(NO_MODEL, "none")
    chips = chips_for(diagnosis)
    if asked.intent == "thanks":
        return Reply("You are welcome. When a run has shown that the fix holds, add its log, and the incident can close.", "courtesy", chips)  # fmt: skip
    return Reply(f"I find the first fault of a training run and answer questions about it. {CAN}", "courtesy", chips)  # fmt: skip


def answer_once(
    text: str, diagnosis: Diagnosis | None, knowledge: Knowledge, question: Question | None = None
) -> AnswerPart:
    """The answer to one message without a record; `question` carries files and what was said before."""
    base = question or Question("", 1, text, diagnosis, {}, (), knowledge)
    return next(RuleAnswerer().answer(base))
