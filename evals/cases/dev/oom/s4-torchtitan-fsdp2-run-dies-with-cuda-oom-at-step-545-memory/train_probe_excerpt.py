# train_probe.py, the part I added on top of torchtitan (lines 96-140)
class ProbeMeter:
    """keeps the auxiliary z-loss and the entropy so we can plot them at the end"""
    def __init__(self):
        self.z, self.ent, self.steps = [], [], 0

    def update(self, z_loss, entropy):
        self.z.append(z_loss)
        self.ent.append(entropy)
        self.steps += 1

    def summary(self):
        return (torch.stack(self.z).mean().item(), torch.stack(self.ent).mean().item())

    ...
    def train_step(self, data_iterator):
        self.optimizers.zero_grad()
        input_dict, labels = next(data_iterator)
        with self.train_context(None):
            hidden, pred = self.model_parts[0](input_dict["input"], return_hidden=True)
            ce = self.loss_fn(pred, labels)
            z = 1e-4 * torch.logsumexp(self.probe_head(hidden), dim=-1).pow(2).mean()
            ent = probe_entropy(hidden)
            loss = ce + z
            del pred
            loss.backward()
        self.probe.update(z, ent)
        grad_norm = dist_utils.clip_grad_norm_(...)
        self.optimizers.step()
