"""Is a silence held against the rhythm that was learned?"""

from firstfault_tools.metrics.rhythm import LEAST_S, Rhythm


def beating(gap: float, count: int) -> Rhythm:
    rhythm = Rhythm()
    for n in range(count):
        rhythm.beat(gap * n)
    return rhythm


def test_a_silence_is_many_times_the_usual_gap() -> None:
    rhythm = beating(30.0, 10)
    assert (rhythm.usual, rhythm.limit) == (30.0, 300.0)
    assert rhythm.silence(500.0) == 230.0


def test_a_pause_that_comes_again_is_known_and_one_alone_is_not() -> None:
    rhythm = beating(1.0, 50)
    rhythm.beat(49.0 + 200.0)
    assert rhythm.limit == LEAST_S
    rhythm.beat(49.0 + 400.0)
    assert rhythm.limit == 600.0


def test_printed_times_teach_before_anything_was_heard() -> None:
    rhythm = Rhythm()
    rhythm.learn([1000.0 + 60 * n for n in range(5)])
    rhythm.beat(7.0, 5)
    assert (rhythm.usual, rhythm.limit, rhythm.silence(17.0)) == (60.0, 600.0, 10.0)


def test_lines_at_the_start_alone_are_no_rhythm() -> None:
    assert not beating(1.0, 60).is_known
    assert beating(2.0, 61).is_known
    told = Rhythm(fixed=4.0)
    told.beat(0.0)
    assert told.is_known
