EVAL_HEADS = {"math", "code", "wiki"}          # which validation sets


def make_evaluators(cfg, log):
    names = [n for n in EVAL_HEADS if cfg.eval.get(n, True)]
    log.info("eval heads registered in order: %s", ", ".join(names))
    return names


@functools.partial(jax.jit, static_argnames=("name",))
def eval_step(state, batch, name):
    logits = state.apply_fn({"params": state.params}, batch["tokens"])
    return losses[name](logits, batch)          # cross-host mean inside


def evaluate(state, eval_iters):
    out = {}
    for name in names:
        for batch in eval_iters[name].take(64):
            out[name] = float(jax.device_get(eval_step(state, batch, name)))
    return out
