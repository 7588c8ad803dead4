"""Frames and code lines of tracebacks that a box is drawn round."""

from tests.rows import each_row

from firstfault_tools.log.boxed import BoxReader, inside, read_code


@each_row(
    ("body", "place"),
    [
        (
            "│ /work/proj/train.py:140 in <module>          │",
            ("/work/proj/train.py", 140, "<module>"),
        ),
        ("│ <string>:3 in run │", ("<string>", 3, "run")),
        ("│ ❱ 41 │   w = self.weights[target_id]          │", None),
        ("/work/proj/train.py:140 in main", None),
        ("│ loss:140 in main │", None),
    ],
)
def test_places(body: str, place: tuple[str, int, str] | None) -> None:
    assert BoxReader().read_place(body) == place


def test_a_broken_path_is_joined() -> None:
    box = BoxReader()
    assert (
        box.read_place("│ /opt/conda/lib/python3.10/site-packages/torch/cuda/amp/grad_ │") is None
    )
    joined = "/opt/conda/lib/python3.10/site-packages/torch/cuda/amp/grad_scaler.py"
    assert box.read_place("│ scaler.py:368 in step │") == (joined, 368, "step")
    assert box.read_place("│ loop.py:9 in fit │") == ("loop.py", 9, "fit")


def test_code_is_the_marked_line() -> None:
    assert read_code("│ ❱ 41 │   w = self.weights[target_id]   │") == "w = self.weights[target_id]"
    assert read_code("│   40 │   x = 1   │") is None
    assert inside("KeyError: 'x'") is None
