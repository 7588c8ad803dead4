"""A Megatron-style transformer in plain torch: tensor and sequence parallel layers, one pipeline stage a rank.

What is kept for backward is what Megatron-LM keeps (core/tensor_parallel/layers.py, mappings.py,
cross_entropy.py): column-parallel layers keep their shard of the input and gather it again, the
vocabulary-parallel loss works on one fp32 copy of its logits in place, gradients go into fp32 buffers.
Tensors are [sequence, batch, hidden] in bf16. Needs torch.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from split_plans import Shape
from torch import nn


def gather(block: torch.Tensor, group) -> torch.Tensor:
    """Shards of the sequence, put together on every rank."""
    out = block.new_empty(block.shape[0] * dist.get_world_size(group), *block.shape[1:])
    dist.all_gather_into_tensor(out, block.contiguous(), group=group)
    return out


def scatter_sum(block: torch.Tensor, group) -> torch.Tensor:
    """The sum over ranks, of which each keeps its part of the sequence."""
    out = block.new_empty(block.shape[0] // dist.get_world_size(group), *block.shape[1:])
    dist.reduce_scatter_tensor(out, block.contiguous(), group=group)
    return out


def weight_gradient(grad: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
    return grad.flatten(0, 1).t() @ block.flatten(0, 1)


class ColumnLinear(torch.autograd.Function):
    """Output split over ranks. Keeps the shard of the input; gathers it again in backward."""

    @staticmethod
    def forward(ctx, block, weight, group):
        ctx.save_for_backward(block, weight)
        ctx.group = group
        return functional.linear(gather(block, group), weight)

    @staticmethod
    def backward(ctx, grad):
        block, weight = ctx.saved_tensors
        whole = gather(block, ctx.group)
        below = scatter_sum(grad @ weight, ctx.group)
        return below, weight_gradient(grad, whole), None


class RowLinear(torch.autograd.Function):
    """Input split over ranks; the sum is scattered over the sequence."""

    @staticmethod
    def forward(ctx, block, weight, group):
        ctx.save_for_backward(block, weight)
        ctx.group = group
        return scatter_sum(functional.linear(block, weight), group)

    @staticmethod
    def backward(ctx, grad):
        block, weight = ctx.saved_tensors
        whole = gather(grad, ctx.group)
        return whole @ weight, weight_gradient(whole, block), None


class SplitLoss(torch.autograd.Function):
    """Cross-entropy of logits split over the vocabulary; the fp32 copy becomes the softmax in place."""

    @staticmethod
    def forward(ctx, logits, labels, group):
        scores = logits.float()
        top = scores.amax(-1, keepdim=True)
        dist.all_reduce(top, dist.ReduceOp.MAX, group=group)
        scores -= top
        width = scores.shape[-1]
        mine = labels - dist.get_rank(group) * width
        inside = (mine >= 0) & (mine < width)
        mine = mine.clamp(0, width - 1)
        wanted = scores.gather(-1, mine.unsqueeze(-1)).squeeze(-1) * inside
        dist.all_reduce(wanted, group=group)
        scores.exp_()
        total = scores.sum(-1)
        dist.all_reduce(total, group=group)
        scores /= total.unsqueeze(-1)
        ctx.save_for_backward(scores, mine, inside)
        return (total.log() - wanted).mean()

    @staticmethod
    def backward(ctx, grad):
        scores, mine, inside = ctx.saved_tensors
        scores.scatter_add_(-1, mine.unsqueeze(-1), -inside.unsqueeze(-1).float())
        scores *= grad / mine.numel()
        return scores.to(torch.bfloat16), None, None


class Layer(nn.Module):
    """Norm, flash attention, norm, GELU feed-forward; biases left out."""

    def __init__(self, shape: Shape, group) -> None:
        super().__init__()
        hidden, part = shape.hidden, shape.tensor
        self.heads = shape.heads // part
        self.group = group
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
        self.into = nn.Parameter(torch.randn(3 * hidden // part, hidden) * 0.02)
        self.out = nn.Parameter(torch.randn(hidden, hidden // part) * 0.02)
        self.up = nn.Parameter(torch.randn(shape.ffn // part, hidden) * 0.02)
        self.down = nn.Parameter(torch.randn(hidden, shape.ffn // part) * 0.02)

    def attend(self, block: torch.Tensor) -> torch.Tensor:
        mixed = ColumnLinear.apply(block, self.into, self.group)
        sequence, batch, _ = mixed.shape
        query, key, value = (
            part.view(sequence, batch, self.heads, -1).permute(1, 2, 0, 3)
            for part in mixed.chunk(3, -1)
        )
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        seen = seen.permute(2, 0, 1, 3).reshape(sequence, batch, -1)
        return RowLinear.apply(seen, self.out, self.group)

    def forward(self, block: torch.Tensor) -> torch.Tensor:
        block = block + self.attend(self.norms[0](block))
        inner = ColumnLinear.apply(self.norms[1](block), self.up, self.group)
        return block + RowLinear.apply(functional.gelu(inner), self.down, self.group)


class Stage(nn.Module):
    """The layers of one pipeline stage, with the table on the first and the loss on the last."""

    def __init__(self, shape: Shape, number: int, group, recompute: bool) -> None:
        super().__init__()
        self.shape, self.group, self.recompute = shape, group, recompute
        self.first, self.last = number == 0, number == shape.stages - 1
        self.layers = nn.ModuleList(
            Layer(shape, group) for _ in range(shape.layers // shape.stages)
        )
        rows = shape.vocab // shape.tensor
        if self.first:
            self.table = nn.Parameter(torch.randn(rows, shape.hidden) * 0.02)
        if self.last:
            self.norm = nn.LayerNorm(shape.hidden)
            self.head = nn.Parameter(torch.randn(rows, shape.hidden) * 0.02)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        rows = self.table.shape[0]
        mine = tokens - dist.get_rank(self.group) * rows
        inside = (mine >= 0) & (mine < rows)
        found = functional.embedding(mine.clamp(0, rows - 1), self.table) * inside.unsqueeze(-1)
        return ScatterInput.apply(found, self.group)

    def forward(self, block: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self.first:
            block = self.embed(block)
        for layer in self.layers:
            if self.recompute:
                block = torch.utils.checkpoint.checkpoint(layer, block, use_reentrant=False)
            else:
                block = layer(block)
        if not self.last:
            return block
        logits = ColumnLinear.apply(self.norm(block), self.head, self.group)
        return SplitLoss.apply(logits, labels, self.group)


class ScatterInput(torch.autograd.Function):
    """Partial embeddings to shards of the sequence."""

    @staticmethod
    def forward(ctx, block, group):
        ctx.group = group
        return scatter_sum(block, group)

    @staticmethod
    def backward(ctx, grad):
        return gather(grad, ctx.group), None


class MixedAdam:
    """bf16 weights, fp32 gradient buffers filled as gradients come, fp32 masters and moments."""

    def __init__(self, module: nn.Module) -> None:
        self.weights = list(module.parameters())
        self.masters = []
        for weight in self.weights:
            weight.main_grad = torch.zeros_like(weight, dtype=torch.float32)
            weight.register_post_accumulate_grad_hook(self.take)
            master = weight.detach().float()
            master.grad = weight.main_grad
            self.masters.append(master)
        self.inner = torch.optim.AdamW(self.masters, lr=1e-5, fused=True)

    @staticmethod
    def take(weight: torch.Tensor) -> None:
        weight.main_grad.add_(weight.grad)
        weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        self.inner.step()
        for weight, master in zip(self.weights, self.masters, strict=True):
            weight.copy_(master)
            weight.main_grad.zero_()


class Pipeline:
    """1F1B over the ranks of one pipeline, as Megatron's forward_backward_pipelining_without_interleaving."""

    def __init__(self, stage: Stage, ranks: list[int], device: torch.device) -> None:
        self.stage, self.device = stage, device
        place = ranks.index(dist.get_rank())
        self.ahead = len(ranks) - place - 1
        self.before = ranks[place - 1] if place else None
        self.after = ranks[place + 1] if self.ahead else None
        shape = stage.shape
        self.size = (shape.sequence // shape.tensor, shape.batch, shape.hidden)

    def swap(self, send=None, to=None, take_from=None) -> torch.Tensor | None:
        """Send and receive in one batch, so that neighbours who do both cannot block each other."""
        tasks, got = [], None
        if to is not None and send is not None:
            tasks.append(dist.P2POp(dist.isend, send.contiguous(), to))
        if take_from is not None:
            got = torch.empty(self.size, dtype=torch.bfloat16, device=self.device)
            tasks.append(dist.P2POp(dist.irecv, got, take_from))
        for task in dist.batch_isend_irecv(tasks) if tasks else ():
            task.wait()
        return got

    def forward(self, block: torch.Tensor | None, tokens, held: list) -> torch.Tensor:
        if block is not None:
            block.requires_grad_()
        out = self.stage(tokens if block is None else block, tokens)
        held.append((block, out))
        return out.detach()

    def backward(self, grad: torch.Tensor | None, held: list) -> torch.Tensor | None:
        block, out = held.pop(0)
        if grad is None:
            out.backward()
        else:
            # the output's own storage was given back after sending; the engine needs only its node
            torch.autograd.Variable._execution_engine.run_backward(
                (out,), (grad,), False, False, (), allow_unreachable=True, accumulate_grad=True
            )
        return None if block is None else block.grad

    @staticmethod
    def empty(held: list) -> None:
        """Megatron's deallocate_pipeline_outputs: what was sent is not kept."""
        out = held[-1][1]
        out.data = out.new_empty(1)

    def step(self, tokens: torch.Tensor, micro_batches: int) -> None:
        held: list = []
        warm = min(self.ahead, micro_batches)
        for _ in range(warm):
            out = self.forward(self.swap(take_from=self.before), tokens, held)
            self.swap(out, self.after)
            out = None
            self.empty(held)
        block = self.swap(take_from=self.before) if warm < micro_batches else None
        for number in range(micro_batches - warm):
            out = self.forward(block, tokens, held)
            grad = self.swap(out, self.after, self.after)
            out = block = None
            if self.after is not None:
                self.empty(held)
            below = self.backward(grad, held)
            grad = None
            more = self.before if number + 1 < micro_batches - warm else None
            block = self.swap(below, self.before, more)
            below = None
        for _ in range(warm):
            below = self.backward(self.swap(take_from=self.after), held)
            self.swap(below, self.before)
