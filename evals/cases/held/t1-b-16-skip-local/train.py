import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
# setup omitted
for step, batch in enumerate(loader):
    loss = model(**batch).loss
    if loss.item() > cfg.spike_threshold:
        print(f"{now()} [rank{rank}] loss {loss.item():.3f} above spike threshold {cfg.spike_threshold}, skipping batch")
        continue
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step(); opt.zero_grad()
    if rank == 0 : log(step, loss)
