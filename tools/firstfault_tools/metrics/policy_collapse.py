"""Did the policy of a reinforcement-learning run collapse? Reward down, and what went with it.

Trainers print rewards, KL, entropy and lengths as `name:value` pairs in one line a step, without a
loss that would mean anything. A reward that falls from where it was and stays down, together with a
KL or gradient norm that explodes or an entropy that vanishes, is a collapse; a reward alone is not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level

MIN_ROWS = 8
TAIL = 3
MAX_ROWS = 800
"""Lines that are read; of more, so many spread evenly, the last one among them."""

FALL, FALL_WITHOUT_ENTROPY = 0.5, 0.8
