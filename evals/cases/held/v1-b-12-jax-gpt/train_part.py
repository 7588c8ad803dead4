@functools.partial(jax.jit, donate_argnums=(0,), in_shardings=(state_sh, batch_sh), out_shardings=(state_sh, None))
def train_step(state, batch):
    ...

def main(_):
    state = init_state(rng, mesh)
    eval_state = state            # same pytree, used for periodic eval
    for step in range(start, cfg.steps):
        state, metrics = train_step(state, next(train_iter))
        if step and step % cfg.eval_every == 0:
            metrics = evaluate(eval_state, eval_iter)
