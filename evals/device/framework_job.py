"""How do programs on transformers, peft, accelerate, Lightning and JAX really fail? One method a fault.

`induce_training.py --faults framework_faults.json` copies this file to `train.py` and starts it:
`train.py METHOD FOLDER`, on one GPU or, where the row says so, as two gloo ranks on processors.
"""

from __future__ import annotations

import resource
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from plain_job import VOCAB, PlainJob, Texts, make_config, make_model, say
from torch import nn
from torch.utils.data import DataLoader


def make_tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(["<unk>", "the", "loss", "fell", "again"])}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>")


class Job(PlainJob):
    """A program for every fault."""

    def arguments(self, **more: Any) -> Any:
        from transformers import TrainingArguments

        values: dict[str, Any] = {
            "output_dir": str(self.folder / "out"), "per_device_train_batch_size": 4, "max_steps": 30,
            "logging_steps": 2, "report_to": "none", "disable_tqdm": True, "save_strategy": "no",
            "learning_rate": 1e-3, "dataloader_num_workers": 0,
        }  # fmt: skip
        return TrainingArguments(**(values | more))

    def trainer(self, model: Any, texts: Any, **more: Any) -> Any:
        from transformers import Trainer

        keep = {
            k: more.pop(k) for k in ("eval_dataset", "data_collator", "optimizers") if k in more
        }
        return Trainer(model=model, args=self.arguments(**more), train_dataset=texts, **keep)

    # -- transformers -----------------------------------------------------------------------------

    def collate_without_pad(self) -> None:
        tokenizer = make_tokenizer()

        def collate(rows: list[str]) -> Any:
            return tokenizer(rows, padding=True, return_tensors="pt")

        for batch in DataLoader(["the loss fell", "again"] * 8, 4, collate_fn=collate):
            say(str(batch["input_ids"].shape))

    def train_half(self) -> None:
        self.trainer(make_model().half(), Texts(), fp16=True).train()

    def ignore_labels(self) -> None:
        self.trainer(make_model(), Texts(ignored=True), bf16=True).train()

    def exceed_table(self) -> None:
        self.trainer(make_model(), Texts(vocab=VOCAB + 40), use_cpu=True).train()

    def exceed_table_on_gpu(self) -> None:
        self.trainer(make_model(), Texts(vocab=VOCAB + 40), bf16=True).train()

    def resume_nothing(self) -> None:
        self.trainer(make_model(), Texts()).train(resume_from_checkpoint=True)

    def forget_labels(self) -> None:
        self.trainer(make_model(), Texts(unlabelled=True)).train()

    def load_other_vocabulary(self) -> None:
        from transformers import LlamaForCausalLM

        make_model(vocab_size=VOCAB - 32).save_pretrained(self.folder / "base")
        LlamaForCausalLM.from_pretrained(self.folder / "base", config=make_config())

    def fill_quota(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self.trainer(make_model(), Texts(), save_strategy="steps", save_steps=10).train()

    def stack_ragged(self) -> None:
        self.trainer(make_model(), Texts(ragged=True)).train()

    def attend_without_kernel(self) -> None:
        from transformers import LlamaForCausalLM

        make_model().save_pretrained(self.folder / "base")
        LlamaForCausalLM.from_pretrained(
            self.folder / "base", attn_implementation="flash_attention_2", dtype=torch.bfloat16
        )

    def quantise_without_library(self) -> None:
        from transformers import BitsAndBytesConfig, LlamaForCausalLM

        make_model().save_pretrained(self.folder / "base")
        how = BitsAndBytesConfig(load_in_4bit=True)
        LlamaForCausalLM.from_pretrained(self.folder / "base", quantization_config=how)

    def train_hot(self) -> None:
        self.trainer(
            make_model(), Texts(), learning_rate=30.0, max_grad_norm=0.0, bf16=True
        ).train()

    def warm_up_forever(self) -> None:
        self.trainer(
            make_model(), Texts(), learning_rate=1e-5, warmup_steps=100_000, max_steps=40
        ).train()

    def evaluate_large(self) -> None:
        torch.cuda.set_per_process_memory_fraction(0.02)
        model = make_model(vocab_size=128_000)
        trainer = self.trainer(
            model, Texts(), eval_dataset=Texts(400, 250), per_device_eval_batch_size=8, bf16=True,
            eval_strategy="steps", eval_steps=10,
        )  # fmt: skip
        trainer.train()

    def finish_with_warnings(self) -> None:
        model = make_model()
        model.gradient_checkpointing_enable()
        self.trainer(model, Texts(), bf16=True, save_strategy="steps", save_steps=10).train()
        trainer = self.trainer(model, Texts(), bf16=True, max_steps=40, save_steps=10)
        trainer.train(resume_from_checkpoint=True)
        say("training done")

    # -- peft, accelerate, safetensors ------------------------------------------------------------

    def adapt_nothing(self) -> None:
        from peft import LoraConfig, get_peft_model

        get_peft_model(make_model(), LoraConfig(target_modules=["query_key_value"]))

    def adapter_of_other_model(self) -> None:
        from peft import LoraConfig, PeftModel, get_peft_model

        small = get_peft_model(make_model(hidden_size=64), LoraConfig(target_modules=["q_proj"]))
        small.save_pretrained(self.folder / "adapter")
        PeftModel.from_pretrained(make_model(), self.folder / "adapter")

    def save_shared_tensors(self) -> None:
        from safetensors.torch import save_file

        model = nn.ModuleDict(
            {"embed": nn.Embedding(64, 32), "head": nn.Linear(32, 64, bias=False)}
        )
        model["head"].weight = model["embed"].weight
        say("saving model.safetensors")
        save_file(model.state_dict(), self.folder / "model.safetensors")

    def load_cut_file(self) -> None:
        from transformers import LlamaForCausalLM

        make_model().save_pretrained(self.folder / "base")
        path = self.folder / "base" / "model.safetensors"
        path.write_bytes(path.read_bytes()[:100_000])
        LlamaForCausalLM.from_pretrained(self.folder / "base")

    def prepare_twice(self) -> None:
        from accelerate import Accelerator

        accelerator = Accelerator(mixed_precision="fp16")
        model = make_model().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        model, optimizer = accelerator.prepare(model, optimizer)
        for step, batch in enumerate(DataLoader(Texts(), 4)):
            loss = model(**{k: v.cuda() for k, v in batch.items()}).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            say(f"step {step} loss {loss.item():.4f}")

    # -- Lightning and JAX ------------------------------------------------------------------------

    def lightning(self, **more: Any) -> Any:
        import lightning

        class Module(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.model = make_model()

            def training_step(self, batch: Any, number: int) -> Any:
                loss = self.model(**batch).loss
                self.log("train_loss", loss)
                return loss

            def configure_optimizers(self) -> Any:
                return torch.optim.AdamW(self.parameters(), lr=1e-3)

        how = {"max_steps": 12, "log_every_n_steps": 2, "default_root_dir": str(self.folder)}
        trainer = lightning.Trainer(**(how | more))
        trainer.fit(Module(), DataLoader(Texts(), 4))
        say("fit returned")

    def watch_missing_metric(self) -> None:
        from lightning.pytorch.callbacks import EarlyStopping

        self.lightning(callbacks=[EarlyStopping("val_loss")])

    def ask_for_eight(self) -> None:
        self.lightning(devices=8, accelerator="gpu")

    def finish_on_lightning(self) -> None:
        self.lightning(accelerator="gpu", devices=1)

    def jax_too_large(self) -> None:
        import jax
        import jax.numpy as jnp

        say(f"devices {jax.devices()}")
        weight = jnp.ones((65_536, 65_536), dtype=jnp.float32)
        for step in range(12):
            held = [jnp.ones((65_536, 65_536), dtype=jnp.float32) + i for i in range(step + 1)]
            say(f"step {step} {sum(float(h[0, 0]) for h in held) + float(weight[0, 0])}")

    def jax_uneven_shards(self) -> None:
        import jax
        import jax.numpy as jnp
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        mesh = Mesh(jax.devices("cpu"), ("data",))
        say(f"mesh {mesh.shape}")
        jax.device_put(jnp.ones((10, 128)), NamedSharding(mesh, PartitionSpec("data")))

    def jax_deleted_buffer(self) -> None:
        import jax
        import jax.numpy as jnp

        step = jax.jit(lambda state, x: (state + x, state.sum()), donate_argnums=0)
        state = jnp.ones((1024, 1024))
        for number in range(4):
            new, loss = step(state, 1.0)
            say(f"step {number} loss {float(loss):.1f}")
        say(str(float(new[0, 0])))

    def jax_nan(self) -> None:
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_debug_nans", True)
        for number in range(6):
            say(f"step {number} loss {float(jnp.log(jnp.array(3.0 - number))):.4f}")


if __name__ == "__main__":
    getattr(Job(Path(sys.argv[2])), sys.argv[1])()
