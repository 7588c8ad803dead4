"""How does an experiment travel? One JSON object of schema firstfault.experiment/1, a line for each trial."""

from __future__ import annotations

import json
from collections.abc import Sequence

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.experiments.experiment import About, Design, Result
from firstfault_tools.experiments.kinds import Kind, Verdict
from firstfault_tools.experiments.sequential import RATES
from firstfault_tools.experiments.trial import Trial
from firstfault_tools.findings import Category, Json
from firstfault_tools.log.secrets import redact

SCHEMA = "firstfault.experiment/1"
SAYS = '"says": '


@dataclass(frozen=True, slots=True)
class Record:
    """What a reader needs of a finished experiment."""

    name: str
    kind: Kind
    hypothesis: str
    about: About
    result: Result


def say_result(name: str, design: Design, result: Result) -> str:
    """The result in one sentence with its numbers."""
    sure = f", probability {result.probability:.1%}" if result.probability is not None else ""
    rule = f"error rates {design.rule.false_alarm:.0%} and {design.rule.miss:.0%}"
    least = f", least possible on average {result.least:g}" if result.least else ""
    verdict = result.verdict.value
    return redact(
        f"experiment {name} ({design.kind.value}), '{design.hypothesis}': {verdict}; {result.says} "
        f"[{result.trials} trials{least}; {rule}{sure}]"
    )


def write_record(name: str, design: Design, trials: Sequence[Trial], result: Result) -> str:
    """The record as text; its second line but one holds the sentence that a diagnosis quotes."""
    rule = design.rule
    rates: Json = rule.rate if rule.rate is not None else list(RATES)
    whole: dict[str, Json] = {
        "schema": SCHEMA,
        "experiment": name,
        "says": say_result(name, design, result),
        "kind": design.kind.value,
        "verdict": result.verdict.value,
        "hypothesis": redact(design.hypothesis),
        "prediction": redact(design.prediction),
        "about": {
            "root_cause": redact(design.about.root_cause),
            "finding": design.about.finding,
            "category": design.about.category.value if design.about.category else None,
        },
        "command": [redact(part) for part in design.command],
        "result": {
            "says": redact(result.says),
            "form": result.form,
            "culprits": [redact(c) for c in result.culprits],
            "probability": result.probability,
            "trials": result.trials,
            "least_trials": result.least,
            "changes": list(design.changes),
        },
        "stopping_rule": {
            "test": "Wald 1945 (sequential probability ratio), posterior by Bayes for searches",
            "rate": rates,
            "noise": rule.noise,
            "false_alarm": rule.false_alarm,
            "miss": rule.miss,
            "most_trials": rule.most_trials,
            "limit_s": design.limit_s,
        },
    }
    rows = [
        json.dumps(
            {
                "subject": list(t.subject),
                "outcome": t.outcome.value,
                "exit_code": t.exit_code,
                "elapsed_s": round(t.elapsed_s, 3),
                "reason": t.reason,
                "figure": t.figure,
                "tail": list(t.tail),
            },
            ensure_ascii=False,
        )
        for t in trials
    ]
    head = [f" {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in whole.items()]
    return "{\n" + ",\n".join([*head, ' "trials": [\n' + ",\n".join(rows) + "\n ]"]) + "\n}\n"


def read_record(text: str, name: str) -> Record:
    """The record of one file. Raises UnreadableArtefact, naming what is missing."""
    try:
        whole = json.loads(text)
        about, result = whole["about"], whole["result"]
        return Record(
            str(whole["experiment"])[:80],
            Kind(whole["kind"]),
            str(whole["hypothesis"]),
            About(
                str(about["root_cause"]),
                str(about["finding"]),
                Category(about["category"]) if about["category"] else None,
            ),
            Result(
                Verdict(whole["verdict"]),
                str(result["says"]),
                tuple(str(c) for c in result["culprits"]),
                str(result["form"]),
                result["probability"],
                int(result["trials"]),
                float(result["least_trials"]),
            ),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnreadableArtefact(
            f"{name}: is no whole record of an experiment ({type(error).__name__}: {error}); write it again with "
            "`firstfault experiment show ID --json`"
        ) from error


def find_says(text: str) -> tuple[int, str]:
    """(line, text) of the sentence that is quoted."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(SAYS):
            return number, line.strip()
    return 1, text.splitlines()[0] if text else ""
