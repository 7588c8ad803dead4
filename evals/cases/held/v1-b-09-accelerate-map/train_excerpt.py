# excerpt of train.py
def main():
    args = parse_args()
    accelerator = Accelerator(mixed_precision="bf16", log_with="wandb")
    tok = AutoTokenizer.from_pretrained(args.model)
    raw = load_dataset("parquet", data_files=args.files, split="train")     # 4.1M rows (was 60k in the pilot)

    with accelerator.main_process_first():
        ds = raw.map(lambda b: tok(b["text"], truncation=True, max_length=8192),
                     batched=True, num_proc=4, remove_columns=raw.column_names)

    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2")
    ...
