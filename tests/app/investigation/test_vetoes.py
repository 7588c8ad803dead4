"""What a person states to be wrong, told from what they only ask, fear, deny or quote."""

from __future__ import annotations

from tests.rows import each_row

from firstfault.investigation.vetoes import not_shown, read_statement
from firstfault_tools.findings import Complaint

D, S, W, U, L = Complaint.DIED, Complaint.STALLED, Complaint.WRONG, Complaint.UNLEARNED, Complaint.SLOW  # fmt: skip


@each_row(
    ("question", "stated"),
    [
        ("it hangs", S), ("It is frozen since noon", S), ("stuck at step 12", S), ("no progress any more", S), ("training just stops", S),
        ("where does it hang?", S), ("it crashed", D), ("What killed it?", D), ("dies with OOM", D), ("ran out of memory", D),
        ("training is slow", L), ("MFU is 18% on H100, expected 40%", L), ("The model does not learn", U), ("the loss is flat", U),
        ("loss is 0.0 all the time", U), ("numbers are wrong", W), ("it gives gibberish", W), ("Das Training hängt", S),
        ("abgestürzt nach 3 h", D), ("c'est très lent", L), ("El modelo no aprende", U), ("训练卡死了", S), ("显存不足", D),
        ("学習が遅い", L),
        ("−30% tokens/s since Monday", L), ("we lost 15 % of throughput", L), ("tokens/s -22% after the upgrade", L), ("busbw is down since the move", L),
        ("grad_sync went from 0.2 s to 2.5 s on our nodes", L), 
        ("3.0 s/step became 8.0 s/step with our new container", L), ("It just sits there since step 96", S),
        ("After the resume the loss goes from 2.2 to about 3.1", Complaint.DIVERGED),
        ("Der Job ist über Nacht verschwunden", D), ("Das Log hört einfach nach Iteration 15301 auf (20:05 Uhr)", D), ("le job a disparu", D),
        ("el registro se corta en el paso 90", D), ("o job sumiu", D), ("il processo è sparito", D), ("задание исчезло", D), ("任务突然中断", D),
        ("ログが途切れた", D), ("작업이 사라졌어요", D), ("the log simply ends at step 90", D), ("the output stops mid-line", D),
       
        ("the pod is just gone", D), ("the machine just restarts in the middle", D),
        ("run gone from squeue since midnight", D), ("the log stops at step 88", D), ("任务早上没了", D), ("日志就停在这里", D),
        ("比昨天慢", L), ("训练慢得多", L), ("the reward keeps falling", U), ("eval accuracy is the same in every epoch", U),
        ("обучение упало", D), ("모델이 학습되지 않아요, 학습이 안 돼요", U),
    ],
)  # fmt: skip
def test_stated(question: str, stated: Complaint) -> None:
    assert stated in read_statement(question).complaints


@each_row(
    "question",
    [
        "", "Is the fear of a crash gone?", "The warning at the end of the log stops me from sleeping",
        "Is this bad?", "Does it hang?", "Will it crash later?", "Did rank 3 die?", "Hang? NCCL?", "it did not crash", "no OOM so far",
        "it never hangs", "nothing hangs", "a warning about a possible hang", "this may crash", "It says \"can hang\"", "Es hängt nicht",
        "Ist es abgestürzt?", "训练没有崩溃", "обучение не упало", "sin fallos", "止まっていません", "Can I leave it running?",
        "loss is at -3 after 40% of the run", "95% GPU memory, is that fine?", "S3 returned SlowDown a few times",
        "does tps crash to a third", "The log ends with a warning",
    ],
)  # fmt: skip
def test_not_stated(question: str) -> None:
    assert read_statement(question).complaints == ()


def test_where_and_how_long() -> None:
    assert read_statement("It hangs after the training finished").at_end
    assert read_statement("It sat there for 7 minutes, stuck").wait_s == 420
    assert read_statement("nothing happened for over two hours").wait_s == 7200
    assert read_statement("it hung for 2.5 min").wait_s == 150


@each_row("complaint", list(Complaint))
def test_every_complaint_has_words_for_what_is_not_shown(complaint: Complaint) -> None:
    assert not_shown(complaint)
