"""Does the monitor alert once, and in constant memory?"""

from firstfault_tools.metrics.monitor import Monitor


def line(step: int, loss: str = "2.0000") -> str:
    return f"step {step} | loss {loss} | grad_norm 1.0 | step_time 100.0ms"


def test_alerts_once_for_a_condition() -> None:
    monitor = Monitor("log")
    monitor.feed([line(s) for s in range(50)])
    assert monitor.check() == []
    monitor.feed([line(s, "nan") for s in range(50, 55)])
    assert [f.kind for f in monitor.check()] == ["metrics.nan_loss"]
    monitor.feed([line(s, "nan") for s in range(55, 90)])
    assert monitor.check() == []


def test_memory_stays_bounded() -> None:
    monitor = Monitor("log", window=500)
    for start in range(0, 40_000, 1000):
        monitor.feed([line(s) for s in range(start, start + 1000)])
        assert monitor.check() == []
        assert monitor.parser.rows() <= 1000
        assert len(monitor.parser.table.texts) + len(monitor.parser.table.recent) <= 1100
    series = monitor.parser.finish()
    assert series.step[-1] == 39_999
    assert series.line[-1] == 40_000
    assert series.texts[len(series) - 1] == line(39_999)


def test_nan_after_trimming_quotes_the_right_line() -> None:
    monitor = Monitor("log", window=200)
    monitor.feed([line(s) for s in range(1000)])
    monitor.feed([line(s, "nan") for s in range(1000, 1010)])
    found = monitor.check()[0]
    assert found.facts["first_bad_step"] == 1000
    assert found.evidence[1].line == 1001
    assert found.evidence[1].text == line(1000, "nan")
