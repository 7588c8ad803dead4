"""How much memory does one block keep after its forward, and how high does its backward rise?

A `Tape` records a block's operations the way eager autograd sees them: what each allocates, what it
saves for backward, what its backward allocates. `run_forward` and `run_backward` replay the
lifetimes. Sizes are bytes. Rules taken from the engine: nodes run in reverse order of creation, a
node's saved tensors are released when it has run, a second gradient of the same tensor is added in
place, a weight's gradient stays.
"""

from __future__ import annotations

from dataclasses import field

from firstfault_tools.dataclass import dataclass

_NONE = -1


@dataclass(frozen=True, slots=True)
class Levels:
    """The heights of which a span tells the highest, moment by moment, in the order of the tape."""

    forward: list[int]
    transient: list[int]
    backward: list[int]
    saved: list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Span:
    """What a block does to memory, in bytes, relative to the moment before it.

    kept: saved for backward, cast weights included. cast: copies of weights in the compute type among
    `kept`. forward_peak: highest point of the forward above the start (input included, everything
    kept included). backward_peak: highest point of the backward above what earlier blocks keep;
    includes this block's `kept` and the gradients it has produced so far. weight_gradients: what the
    backward leaves behind. output: size of the block's result.
    """

    kept: int
    cast: int
    forward_peak: int
    transient_peak: int
    backward_peak: int
    weight_gradients: int
    output: int
    largest: tuple[str, int]
    levels: Levels | None = field(default=None, compare=False, repr=False)


class Tape:
    """Recorder of one block. Tensors are handles (ints); 0 is the block's input."""

    __slots__ = ("_cast", "_names", "_nodes", "_sizes")

    def __init__(self, input_bytes: int, name: str = "input") -> None:
        self._sizes: list[int] = [input_bytes]
        self._names: list[str] = [name]
        self._nodes: list[
            tuple[tuple[int, ...], int, tuple[int, ...], int, int, int, int, int]
        ] = []
        self._cast = 0

    def size(self, tensor: int) -> int:
        """Bytes of a tensor."""
        return self._sizes[tensor]

    def run(
        self,
        name: str,
        inputs: tuple[int, ...],
        output_bytes: int,
        *,
        save: tuple[int, ...] = (),
        save_output: bool = False,
        saved_bytes: int = 0,
        scratch: int = 0,
        back_scratch: int = 0,
        weight_gradient: int = 0,
        passes: int = _NONE,
    ) -> int:
        """Append an operation and return the handle of its output.

        save: inputs kept for backward. saved_bytes: private extras kept with the node (statistics, a
        cast weight). scratch: temporaries of the forward. back_scratch: temporaries of the backward.
        passes: index in `inputs` whose gradient is the output's gradient itself (a residual sum).
        """
        out = len(self._sizes)
        self._sizes.append(output_bytes)
        self._names.append(name)
        kept = (*save, out) if save_output else save
        self._nodes.append(
            (inputs, out, kept, saved_bytes, scratch, back_scratch, weight_gradient, passes)
        )
        return out

    def add_cast(self, weight_bytes: int) -> None:
        """Count a cast weight that the last node keeps."""
        self._cast += weight_bytes

    def replay(self, upstream: int | None = None) -> Span:
        """Replay forward and backward once. upstream: bytes of the output's incoming gradient."""
        sizes, nodes = self._sizes, self._nodes
        count = len(sizes)
        last = [_NONE] * count
        uses = [0] * count
        for index, node in enumerate(nodes):
            for tensor in node[0]:
                last[tensor] = index
            for tensor in node[2]:
                uses[tensor] += 1
        output = nodes[-1][1]
        last[output] = len(nodes)
        forward, transient, extras = self._replay_forward(last, uses)
        saved = [(self._names[n], sizes[n]) for n in range(count) if uses[n]]
        kept = extras + sum(size for _, size in saved)
        weights, backward = self._replay_backward(uses, kept, upstream)
        return Span(
            kept=kept,
            cast=self._cast,
            forward_peak=max(forward),
            transient_peak=max(transient) - self._cast,
            backward_peak=max(backward),
            weight_gradients=weights,
            output=sizes[output],
            largest=max(saved, key=lambda row: row[1], default=(self._names[0], 0)),
            levels=Levels(forward, transient, backward, saved),
        )

    def _replay_forward(self, last: list[int], uses: list[int]) -> tuple[list[int], list[int], int]:
        """Heights with everything kept for backward and where nothing is, extras kept with the nodes."""
        sizes = self._sizes
        live = sizes[0]
        kept = extras = 0
        whole, bare = [live], [live]
        for index, (inputs, out, _, saved, scratch, _, _, _) in enumerate(self._nodes):
            live += sizes[out] + saved
            extras += saved
            high = live + scratch
            bare.append(high)
            whole.append(high + kept)
            for tensor in set(inputs) if len(inputs) > 1 else inputs:
                if last[tensor] == index:
                    live -= sizes[tensor]
                    if uses[tensor]:
                        kept += sizes[tensor]
        return whole, bare, extras

    def _replay_backward(
        self, uses: list[int], kept: int, upstream: int | None
    ) -> tuple[int, list[int]]:
        sizes, nodes = self._sizes, self._nodes
        gradient = [_NONE] * len(sizes)
        output = nodes[-1][1]
        gradient[output] = sizes[output] if upstream is None else upstream
        live = kept + gradient[output]
        heights = [live]
        weights = 0
        for inputs, out, saved, extra, _, scratch, weight, passes in reversed(nodes):
            incoming = gradient[out]
            live += weight
            weights += weight
            duplicate = 0
            for index, tensor in enumerate(inputs):
                if index == passes:
                    arriving, incoming = incoming, 0
                elif passes != _NONE:
                    arriving = 0
                else:
                    arriving = sizes[tensor]
                    live += arriving
                if gradient[tensor] == _NONE:
                    gradient[tensor] = arriving
                elif arriving > gradient[tensor]:
                    duplicate += gradient[tensor]
                    gradient[tensor] = arriving
                else:
                    duplicate += arriving
            heights.append(live + scratch)
            live -= duplicate + extra + (incoming if incoming > 0 else 0)
            gradient[out] = _NONE
            for tensor in saved:
                uses[tensor] -= 1
                if not uses[tensor]:
                    live -= sizes[tensor]
        return weights, heights
