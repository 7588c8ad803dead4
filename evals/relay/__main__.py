"""How good is the product with a strong model, where none can be reached? A careful reader is the model.

    python -m evals.relay prepare SOURCE... --out FOLDER --key KEY.json     number cases blindly
    python -m evals.relay run FOLDER [--reader NAME] [--arms alone,product] [--not-passed] [--again]
    python -m evals.relay score FOLDER --key KEY.json [--reader NAME]       one table, arms side by side
    python -m evals.relay record FOLDER --to FILE.json [--reader NAME]      what was said, to replay

Nobody waits: `run` does what can be done with the replies there are, writes a file for every request
that has none, and ends. Call it again when replies came in; two or three rounds finish a case.

Layout of FOLDER (SOURCE: folders of `case.yaml` files, or of `*.yaml` files with a `log`):
    cases/07/question.txt, cases/07/<files>      what the product and the readers get, and nothing else
    requests/<reader>/READ_FIRST.md              instructions and the form of a reply, once for all requests
    requests/<reader>/07.product.1.md            one request; .2 holds tool results, and so on
    requests/<reader>/07.alone.1.md              question and log only (arm `alone`)
    requests/<reader>/raw/...                    the same as it goes over the wire, for counting tokens
    replies/<reader>/<any name>.json             what the reader writes
    results/<reader>/07.product.json             what the product made of it

What a reader does: read READ_FIRST.md and the requests given to them (a reader may take any share of
the numbers; `*.1.md` first), and nothing else of FOLDER. Judge each by its own text. Write one or more
JSON files into replies/<reader>/, each an object from request to reply; several readers write files of
different names:
    {"07.product.1": {"reply": {"answer": [...], "explanations": [...]}},
     "08.product.1": {"calls": [{"name": "read_page", "arguments": {"page": "..."}}]},
     "07.alone.1":   {"reply": {"verdict": "fault", "category": "oom", "first_failing_rank": 3, "root_cause": "..."}}}
A request in `product` is answered by `reply` (the fields are in READ_FIRST.md), or by `calls` of the
tools it names if their result could change the answer; then a `.2.md` appears with the results after the
next `run`. At most three requests a case are worth it. `run` says which replies it could not read.

A reader that plays a weak, lying or over-confident model takes another NAME; with --not-passed the
product treats the model as one that has not passed its exam.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from evals.relay.arms import run_arms
from evals.relay.blind import prepare
from evals.relay.recording import record
from evals.relay.scoring import write_scores


def main() -> None:
    """Parse arguments and do one of the four."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    first = verbs.add_parser("prepare")
    first.add_argument("source", type=Path, nargs="+")
    first.add_argument("--out", type=Path, required=True)
    first.add_argument("--key", type=Path, required=True)
    first.add_argument("--seed", type=int, default=1)
    first.add_argument("--limit", type=int, default=0)
    for verb in ("run", "score", "record"):
        one = verbs.add_parser(verb)
        one.add_argument("folder", type=Path)
        one.add_argument("--reader", default="reader")
        one.add_argument("--cases", default="", help="numbers, comma separated; empty: all")
        if verb == "run":
            one.add_argument("--arms", default="alone,product")
            one.add_argument("--not-passed", action="store_true")
            one.add_argument("--again", action="store_true", help="also what is finished")
        elif verb == "score":
            one.add_argument("--key", type=Path, required=True)
            one.add_argument("--verbose", "-v", action="store_true")
        else:
            one.add_argument("--to", type=Path, required=True)
    arguments = parser.parse_args()
    only = {n for n in getattr(arguments, "cases", "").split(",") if n}
    if arguments.verb == "prepare":
        prepare(arguments.source, arguments.out, arguments.key, arguments.seed, arguments.limit)
    elif arguments.verb == "run":
        run_arms(
            arguments.folder, arguments.reader, arguments.arms.split(","),
            passed=not arguments.not_passed, again=arguments.again, only=only,
        )  # fmt: skip
    elif arguments.verb == "score":
        write_scores(arguments.folder, arguments.key, arguments.reader, arguments.verbose, only)
    else:
        record(arguments.folder, arguments.reader, arguments.to, only)


if __name__ == "__main__":
    main()
