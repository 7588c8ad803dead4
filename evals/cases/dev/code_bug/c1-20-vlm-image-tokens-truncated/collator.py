class VLCollator:
    def __init__(self, processor, max_length=8192):
        self.p, self.max_length = processor, max_length

    def __call__(self, examples):
        texts = [self.p.apply_chat_template(e["messages"], tokenize=False) for e in examples]
        images = [e["images"] for e in examples]
        batch = self.p(text=texts, images=images, padding=True, return_tensors="pt")
        for k in ("input_ids", "attention_mask"):
            batch[k] = batch[k][:, : self.max_length]          # long samples OOM otherwise
        labels = batch["input_ids"].clone()
        labels[labels == self.p.tokenizer.pad_token_id] = -100
        batch["labels"] = labels
        return batch
