import torch, torch.distributed as dist
from transformers import Trainer, TrainerCallback, TrainingArguments, AutoModelForCausalLM, AutoTokenizer
from data import build_sets, PROMPTS

MODEL = "Qwen/Qwen2.5-14B"
tok = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16)
train, dev = build_sets(tok)

args = TrainingArguments(
    output_dir="out/q14b", per_device_train_batch_size=2, gradient_accumulation_steps=4,
    learning_rate=2e-5, max_steps=4000, logging_steps=10, bf16=True,
    gradient_checkpointing=True, save_steps=1000, ddp_timeout=1800,
    fsdp="full_shard auto_wrap", fsdp_config={"transformer_layer_cls_to_wrap": ["Qwen2DecoderLayer"]},
)

class GenProbe(TrainerCallback):
    """print a few samples now and then"""
    def __init__(self, every=500):
        self.every = every

    def on_step_end(self, args, state, control, model=None, **kw):
        if state.global_step == 0 or state.global_step % self.every:
            return
        if not state.is_world_process_zero:
            return
        print(f"[probe] step {state.global_step}: running generation probe on {len(PROMPTS)} prompts")
        model.eval()
        with torch.no_grad():
            for p in PROMPTS:
                ids = tok(p, return_tensors="pt").to("cuda")
                out = model.generate(**ids, max_new_tokens=128)
                print(tok.decode(out[0]))
        model.train()

Trainer(model=model, args=args, train_dataset=train, eval_dataset=dev,
        callbacks=[GenProbe()]).train()
