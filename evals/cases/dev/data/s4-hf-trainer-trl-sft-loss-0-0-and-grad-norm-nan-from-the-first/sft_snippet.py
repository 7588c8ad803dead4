from trl import SFTTrainer, SFTConfig
from trl import DataCollatorForCompletionOnlyLM

tok = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B-Instruct")
tok.pad_token = "<|finetune_right_pad_id|>"
collator = DataCollatorForCompletionOnlyLM("<|im_start|>assistant\n", tokenizer=tok)   # copied from our qwen recipe
trainer = SFTTrainer(model=model, args=SFTConfig(bf16=True, learning_rate=2e-5, max_length=4096, ...),
                     train_dataset=ds, data_collator=collator)
