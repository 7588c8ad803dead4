# train.py, lines 171-199
for step in range(start, cfg.steps):
    for i in range(cfg.grad_accum):
        last = i == cfg.grad_accum - 1
        model.set_requires_gradient_sync(last)   # "skip comm until the last microbatch"
        batch = next(it)
        loss = loss_fn(model(batch["input_ids"]), batch["labels"]) / cfg.grad_accum
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step(); opt.zero_grad(set_to_none=True)

# --- notes from yesterday (run 0513b, same nodes, same config but grad_accum: 1)
# step 1..400 ok, peak allocated 31.2GiB, peak reserved 38.0GiB, 3.1k tok/s/gpu
