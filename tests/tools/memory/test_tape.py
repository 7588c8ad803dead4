from firstfault_tools.memory.tape import Tape


def test_a_saved_tensor_stays_and_others_go():
    tape = Tape(10)
    kept = tape.run("a", (0,), 100, save=(0,))
    dropped = tape.run("b", (kept,), 1000, save=(kept,))
    tape.run("c", (dropped,), 5)
    span = tape.replay()
    assert span.kept == 110
    # a, b and c stand together with the input; nothing can go before c exists.
    assert span.forward_peak == 1115
    assert span.output == 5


def test_backward_releases_what_a_node_saved_once_it_ran():
    tape = Tape(8)
    first = tape.run("first", (0,), 8, save=(0,), weight_gradient=3)
    tape.run("second", (first,), 8, save=(first,), weight_gradient=4)
    span = tape.replay()
    assert span.weight_gradients == 7
    # kept 16, incoming gradient 8, gradient of `first` 8, weight 4
    assert span.backward_peak == 36


def test_a_residual_passes_its_gradient_on_without_a_copy():
    plain, residual = Tape(8), Tape(8)
    branch = plain.run("branch", (0,), 8, save=(0,))
    plain.run("sum", (0, branch), 8)
    branch = residual.run("branch", (0,), 8, save=(0,))
    residual.run("sum", (0, branch), 8, passes=0)
    assert residual.replay().backward_peak < plain.replay().backward_peak


def test_transient_forward_keeps_nothing():
    tape = Tape(10)
    tensor = 0
    for _ in range(5):
        tensor = tape.run("op", (tensor,), 10, save=(tensor,))
    span = tape.replay()
    assert span.forward_peak == 60
    assert span.transient_peak == 20


def test_replay_can_be_repeated():
    tape = Tape(10)
    tape.run("op", (0,), 10, save=(0,), save_output=True)
    assert tape.replay() == tape.replay()
