# train.py (excerpt, lines 301-338)
    for step, batch in enumerate(loader, start=1):
        loss = model(**batch).loss
        loss.backward()
        gn = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step(); sched.step(); optim.zero_grad(set_to_none=True)
        if step % 20 == 0:
            log0(f"step {step}/{total} loss {loss.item():.4f} grad_norm {gn.full_tensor().item():.3f} ...")

        if step % 1000 == 0 and rank == 0:
            log0(f"step {step}: exporting HF weights to {export_dir}/step{step}")
            sd = {}
            for name, p in model.named_parameters():
                sd[name] = p.full_tensor().to("cpu", torch.bfloat16)
            save_file(sd, f"{export_dir}/step{step}/model.safetensors")

        # stop criterion shared over ranks
        stop = torch.tensor([int(time.time() > deadline)], device="cuda")
        dist.all_reduce(stop, op=dist.ReduceOp.MAX)
        if stop.item():
            break
