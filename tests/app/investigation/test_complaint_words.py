"""What does the question state, and when does a printed setting become the answer?"""

from __future__ import annotations

from tests.rows import each_row

from firstfault.investigation.complaint import read_complaint
from firstfault_tools.findings import Complaint


@each_row(
    ("question", "complaint"),
    [
        ("Job 1 reached 402 TFLOP/s per GPU, job 2 only 220.", Complaint.SLOW),
        ("samples/s stay at 9.3. Network?", Complaint.SLOW),
        ("Half the throughput of an identical job, from step 1.", Complaint.SLOW),
        ("Training is very slow.", Complaint.SLOW),
        ("More than half of each step is allreduce wait.", Complaint.SLOW),
        ("Four cards, but bus bandwidth 9 GB/s.", Complaint.SLOW),
        ("Two minutes pass between epochs.", Complaint.SLOW),
        ("22 s per step, others report 5.", Complaint.SLOW),
        ("All GPUs stood still for 6 minutes.", Complaint.SLOW),
        ("Each rank runs at 1/8 speed since the move.", Complaint.SLOW),
        ("Is it trained between two steps?", None),
        ("Step is still 0 after an hour.", Complaint.STALLED),
        ("It is stuck at step 12.", Complaint.STALLED),
        ("The rewards are stuck at 0.0 with a new model.", Complaint.UNLEARNED),
        ("The loss remains 0.6931.", Complaint.UNLEARNED),
        ("The eval accuracy is always about 50 %.", Complaint.UNLEARNED),
        ("I resumed at epoch 9 and accuracy fell from 60 % to 40 %.", Complaint.SETBACK),
        ("In epoch 9 the speed fell from 6 to 4 it/s.", Complaint.SLOW),
        ("Reward rises until step 41, then falls.", Complaint.DIVERGED),
        ("Is the network slow?", None),
        ("Step 1 took 52 s instead of 0.4 s.", None),
        ("Can I leave it running?", None),
    ],
)
def test_complaint(question: str, complaint: Complaint | None) -> None:
    assert read_complaint(question) is complaint
