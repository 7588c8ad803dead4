"""A chain of whys goes on as far as lines carry it, each step with its own."""

from __future__ import annotations

from pathlib import Path

from tests.seeds.run_logs import write_log

from firstfault.investigation.headline import say_plainly
from firstfault.postmortem.evidence import Artefacts, Book
from firstfault.postmortem.whys import GivenWhy, ask_whys
from firstfault.workspace import Workspace

HEAD = (
    "  lr .............................................. 0.006\n"
    "  clip_grad ....................................... 0.0\n"
    "  lr_warmup_iters ................................. 0"
)
COLUMNS = {
    "lr": 6.0e-3,
    "loss": [[10, 3.5], [2490, 2.1], [2500, "nan"]],
    "norm": [[10, 1.2], [2400, 2.2], [2480, 14.0], [2490, 150.0], [2500, "nan"]],
}


def test_from_nan_over_gradients_to_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(write_log({"form": "megatron", "steps": [10, 3000, 10], "head": HEAD, "columns": COLUMNS}))  # fmt: skip
    diagnosis = Workspace().diagnose_paths([path])
    artefacts, book = Artefacts({path.name: path}, diagnosis.citations), Book()
    whys = ask_whys(diagnosis, artefacts, book)
    said = [w.because.text for w in whys if w.because is not None]
    assert "NaN since iteration 2500" in say_plainly(diagnosis)[0]
    assert "NaN since" not in " ".join(said), "the headline has said it"
    assert said[0].startswith("The first fault, named above")
    assert "gradient norm had gone from" in said[1]
    assert "learning rate 0.006; gradients are not clipped" in said[2]
    quotes = {c.n: c.quote for c in book.citations}
    settings = [quotes[n] for n in whys[2].because.citations]  # type: ignore[union-attr]
    assert any("clip_grad" in q for q in settings)
    assert any("lr_warmup_iters" in q for q in settings)
    assert not any(w.because.assumed for w in whys if w.because is not None)
    assert (whys[-1].question, whys[-1].because) == ("Why was it so?", None), "who set it so no line says"  # fmt: skip
    person = [GivenWhy(text, "train.log:3") for text in said]
    whole = ask_whys(diagnosis, artefacts, Book(), [*person, GivenWhy("The rate was copied from a paper with another batch size", "wiki/run-7")])  # fmt: skip
    assert len(whole) == 4
