"""An 8-bit optimizer, an fp8 matmul and an RMS norm in plain PyTorch, for machines whose libraries lack or break them."""

from __future__ import annotations

from typing import Any

import torch


class Adam8bit(torch.optim.Optimizer):
    """Adam with both moments as one byte an element and an fp32 scale for each block of 256."""

    def __init__(self, params: Any, lr: float = 1e-4) -> None:
        super().__init__(params, {"lr": lr})

    @staticmethod
    def _pack(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        blocks = value.view(-1, 256)
        scale = blocks.abs().amax(1, keepdim=True).clamp_min(1e-12)
        return (blocks / scale * 127).round().to(torch.int8), scale

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                if weight.numel() % 256:
                    weight.sub_(weight.grad, alpha=group["lr"])
                    continue
                state = self.state[weight]
                if not state:
                    zero = torch.zeros(
                        weight.numel() // 256, 256, dtype=torch.int8, device=weight.device
                    )
                    one = torch.ones(weight.numel() // 256, 1, device=weight.device)
                    state["first"], state["second"] = (zero, one), (zero.clone(), one.clone())
                # One slice at a time, as the fused kernel does it: no copy of a whole tensor.
                flat, gradient = weight.view(-1, 256), weight.grad.view(-1, 256)
                for begin in range(0, flat.shape[0], 4096):
                    part = slice(begin, begin + 4096)
                    fresh = gradient[part].float()
                    moments = []
                    for name, keep, value in (
                        ("first", 0.9, fresh),
                        ("second", 0.99, fresh * fresh),
                    ):
                        whole, scale = state[name]
                        mixed = whole[part].float() / 127 * scale[part] * keep + value * (1 - keep)
                        whole[part], scale[part] = self._pack(mixed)
                        moments.append(mixed)
                    flat[part] -= group["lr"] * moments[0] / (moments[1].sqrt() + 1e-8)


class Fp8Linear(torch.autograd.Function):
    """x @ w.T with both cast to e4m3; keeps the fp8 input and the half-precision weight."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        one = torch.ones((), device=x.device)
        low, table = flat.to(torch.float8_e4m3fn), weight.to(torch.float8_e4m3fn)
        ctx.save_for_backward(low, weight)
        ctx.shape = x.shape
        out = torch._scaled_mm(low, table.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        return out.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        low, weight = ctx.saved_tensors
        gradient = grads[0].reshape(-1, grads[0].shape[-1])
        back = (gradient @ weight.to(gradient.dtype)).view(ctx.shape)
        return back, gradient.t() @ low.to(gradient.dtype)


class RmsNorm(torch.autograd.Function):
    """What torch.nn.RMSNorm's fused kernel keeps (input, one rate a row), in plain operations over slices.

    To tell whether the fused kernel is why FLUX's backward faults (PyTorch 2.11, CUDA 13, H200): under autocast
    the row then ran, in bf16 the rows fault with this one as well, and their cause is not found.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        rate = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, rate, weight)
        return (x * rate).to(x.dtype) * weight

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        x, rate, weight = ctx.saved_tensors
        out, width = torch.empty_like(x), x.shape[-1]
        trained = torch.zeros(width, device=x.device) if ctx.needs_input_grad[1] else None
        rows = zip(
            grads[0].reshape(-1, width).split(8192), x.reshape(-1, width).split(8192),
            rate.reshape(-1, 1).split(8192), out.view(-1, width).split(8192), strict=True,
        )  # fmt: skip
        for gradient, part, scale, place in rows:
            normed = part.float() * scale
            inner = gradient.float() * weight
            place.copy_(scale * (inner - normed * (inner * normed).mean(-1, keepdim=True)))
            if trained is not None:
                trained += (gradient.float() * normed).sum(0)
        return out, None if trained is None else trained.to(weight.dtype), None
