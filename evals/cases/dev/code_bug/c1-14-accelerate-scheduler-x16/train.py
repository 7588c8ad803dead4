accelerator = Accelerator(gradient_accumulation_steps=1, mixed_precision="bf16")   # split_batches default False
num_update_steps = math.ceil(len(train_loader_full) / accelerator.num_processes)    # 10000 on 16 GPUs

optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
lr_scheduler = get_cosine_schedule_with_warmup(
    optimizer, num_warmup_steps=0, num_training_steps=num_update_steps)

model, optimizer, train_loader, lr_scheduler = accelerator.prepare(
    model, optimizer, train_loader, lr_scheduler)

for batch in train_loader:
    with accelerator.accumulate(model):
        loss = model(**batch).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        lr_scheduler.step()
        optimizer.zero_grad()
