# finetune/ckpt.py (excerpt)
def load_pretrained(model, path):
    full_sd = {}
    for shard in sorted(glob(f"{path}/*.safetensors")):
        full_sd.update(load_file(shard, device="cpu"))
        log.info("loaded %s to cpu (rank-local dict now %.1f GB)", os.path.basename(shard), nbytes(full_sd) / 1e9)
    set_model_state_dict(
        model,
        full_sd,
        options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=False, strict=True),
    )
    del full_sd
