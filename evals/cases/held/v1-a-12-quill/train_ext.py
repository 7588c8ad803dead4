# train_ext.py (our hook, merged yesterday)
class EvalHook:
    def __init__(self, trainer, every=500):
        self.trainer, self.every = trainer, every
        self.rank = dist.get_rank()

    def after_step(self, step, metrics):
        if step % self.every == 0:
            if self.rank == 0:
                logger.info("[eval] running held-out perplexity over 64 batches")
                ppl = self._ppl(self.trainer.model_parts[0], n=64)   # FSDP2 model
                self.writer.add_scalar("eval/ppl", ppl, step)
        # mean loss over everyone
        t = torch.tensor([metrics["loss"]], device="cuda")
        dist.all_reduce(t, op=dist.ReduceOp.AVG)
        return t.item()
