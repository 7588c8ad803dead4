"""A measuring program on a simulated fabric: `fabric_tool.py A B` prints the bandwidth between two nodes.

switch-04 port 17 is slow unless REROUTED is set. With `step` it prints the parts of a training step.
"""

import os
import sys


def spine(a: str, b: str) -> list[str]:
    leaves = [int(h[5:]) // 8 + 1 for h in (a, b)]
    if leaves[0] == leaves[1]:
        return []
    number = 1 + (int(a[5:]) + int(b[5:])) % 4
    return [f"switch-{number:02} port {11 + 3 * leaf}" for leaf in leaves]


if __name__ == "__main__":
    if sys.argv[1] == "step":
        print("compute_ms = 4101")
    else:
        slow = "switch-04 port 17" in spine(*sys.argv[1:3]) and not os.environ.get("REROUTED")
        print(f"all_reduce_perf -b 1G -e 1G -g 8: busbw = {17.1 if slow else 42.3} GB/s")
