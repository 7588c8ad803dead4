"""Names that strict=False left out, told from lists or counts; a load that fits is not."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.causality.state_keys import find_in_lines

TOLD = [
    [
        "_IncompatibleKeys(missing_keys=['a.w', 'b.w'], unexpected_keys=['module.a.w', 'module.b.w'])"
    ],
    ["missing keys: ['a.w', 'b.w']", "unexpected keys: ['module.a.w', 'module.b.w']"],
    ["load_state_dict strict=False: missing_keys=318 unexpected_keys=318"],
    [
        "loaded: missing 39 (first model.embed.weight), unexpected 39 (first encoder.model.embed.weight)"
    ],
    [
        "missing: 12 keys, e.g. backbone.conv1.weight; unexpected: 12 keys, e.g. module.backbone.conv1.weight"
    ],
]
QUIET = [
    ["<All keys matched successfully>"],
    ["_IncompatibleKeys(missing_keys=['head.weight', 'head.bias'], unexpected_keys=[])"],
    ["_IncompatibleKeys(missing_keys=[], unexpected_keys=['ema.decay'])"],
    ["_IncompatibleKeys(missing_keys=['head.weight'], unexpected_keys=['fc.weight'])"],
    ["missing_keys=2 unexpected_keys=2"],
    ["missing 3 (head.fc.weight), unexpected 5 (module.head.fc.weight)"],
    ["missing 2 (first head.fc.weight), unexpected 2 (first head.classifier.weight)"],
    ["missing 1 file data.bin, unexpected 1 char a.b"],
    ["missing_keys=0 unexpected_keys=0"],
]


@each_row("lines", TOLD)
def test_left_out(lines: list[str]) -> None:
    (found,) = find_in_lines(list(enumerate(lines, 1)), "log")
    assert found.kind == "checkpoint.names_differ"


@each_row("lines", QUIET)
def test_fits(lines: list[str]) -> None:
    assert find_in_lines(list(enumerate(lines, 1)), "log") == ()
