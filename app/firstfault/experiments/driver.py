"""How does an experiment go on from where it stands? The next trial is shown, run, and on record before the next."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from firstfault.errors import CannotAnalyse
from firstfault.experiments.preparation import Prepared, clean_up, prepare
from firstfault.incidents.experiments import StoredExperiment
from firstfault.incidents.record import EXPERIMENTS, Record
from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import ToolError
from firstfault_tools.experiments.experiment import Ask, Design, Result, judge_figures, next_step
from firstfault_tools.experiments.kinds import Kind, Verdict
from firstfault_tools.experiments.trial import Outcome, Trial, run_trial

Show = Callable[[str], None]


@dataclass(frozen=True)
class Driver:
    """Carries experiments out. show: gets each command before it runs, and how it ended."""

    record: Record
    show: Show

    def folder_of(self, experiment: str) -> Path:
        """Where what the trials are given, and what they wrote, lies."""
        return self.record.settings.data / EXPERIMENTS / experiment

    def carry_on(self, experiment: str) -> StoredExperiment:
        """Run trials until there is a result; it is on record then. Raises CannotAnalyse.

        Killed at any time, it goes on behind the last trial that ended. One that was running is run again.
        """
        store = self.record.experiments
        stored = store.get(experiment)
        design, trials = stored.design, list(stored.trials)
        folder = self.folder_of(experiment)
        try:
            while True:
                step = next_step(design, judge_figures(design, trials))
                if isinstance(step, Result):
                    break
                trial = self._run(design, step, folder, len(trials) + 1)
                trials.append(trial)
                store.add_trial(experiment, len(trials), trial)
            clean_up(design, folder)
        except ToolError as error:
            raise CannotAnalyse(str(error)) from error
        if design.kind is Kind.COMPONENT:
            step = judge_components(folder, step)
        store.finish(experiment, step)
        return store.get(experiment)

    def _run(self, design: Design, ask: Ask, folder: Path, number: int) -> Trial:
        prepared = prepare(design, ask.subject, folder, number)
        self.show(f"[{number}] {say_subject(design, ask.subject)}")
        self.show(f"+ {say_command(prepared)}")
        trial = run_trial(
            prepared.argv,
            ask.subject,
            design.limit_s,
            design.criterion,
            environment=prepared.environment or None,
            folder=prepared.folder,
        )
        if design.kind is Kind.COMPONENT and trial.outcome is Outcome.FAILED:
            trial = _read_refusal(trial, prepared)
        figure = f" ({trial.figure:g})" if trial.figure is not None else ""
        self.show(
            f"  {trial.outcome.value}{figure} in {trial.elapsed_s:.1f} s"
            + (f": {trial.reason}" if trial.reason else "")
        )
        return trial


def _read_refusal(trial: Trial, prepared: Prepared) -> Trial:
    """A launcher turns the script's 125 into its own 1; what the script wrote says that it was no failure."""
    from firstfault_tools.experiments.component import OUT_VARIABLE, find_refusal

    why = find_refusal(Path(prepared.environment[OUT_VARIABLE]))
    return replace(trial, outcome=Outcome.SKIPPED, reason=why) if why else trial


def judge_components(folder: Path, step: Result) -> Result:
    """The result with what the script recorded in each variant."""
    from firstfault_tools.experiments.component import compare_variants, read_folder

    effects = compare_variants(read_folder(folder / "records"))
    if not effects:
        return replace(
            step,
            says=f"{step.says}; the script recorded no steps: does it import firstfault_component?",
        )
    first = effects[0]
    verdict = Verdict.SUPPORTED if first.carries else Verdict.REFUTED
    says = "; ".join(e.says for e in effects[:4])
    return replace(step, verdict=verdict, says=says, culprits=(first.component,), form="component run")  # fmt: skip


def say_command(prepared: Prepared) -> str:
    """The command as a person may type it."""
    told = [f"{k}={shlex.quote(v)}" for k, v in prepared.environment.items()]
    inside = f"(cd {shlex.quote(str(prepared.folder))}) " if prepared.folder else ""
    return inside + " ".join([*told, shlex.join(prepared.argv)])


def say_subject(design: Design, subject: tuple[str, ...]) -> str:
    """What a trial tries, in words."""
    if design.kind is Kind.HOSTS:
        shown = ", ".join(subject[:6]) + (" ..." if len(subject) > 6 else "")
        return f"{len(subject)} hosts: {shown}"
    if design.kind is Kind.PAIRS:
        return f"{subject[0]} with {subject[1]}"
    if design.kind is Kind.COMMITS:
        return f"commit {subject[0][:12]}"
    if design.kind is Kind.SETTINGS:
        return f"the good configuration with {len(subject)} of {len(design.subjects)} differences"
    if design.kind is Kind.COMPONENT:
        return subject[0].replace("_", " ")
    return f"{design.what} {subject[0]}" if design.kind is Kind.SIZES else design.hypothesis
