"""A worker (worker.h) that trains: fixed work, nothing allocated once it is warm.

small N    N steps of a model so small that launching is what takes the time; answer: nanoseconds
large N    N steps of a model that keeps the device busy"""

import gc
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 8192


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Training:
    def __init__(self, device, layers, width, batch, length):
        torch.manual_seed(0)
        self.device = device
        self.embed = nn.Embedding(VOCABULARY, width)
        self.rest = nn.Sequential(
            *(Block(width, width // 64) for _ in range(layers)), nn.LayerNorm(width), nn.Linear(width, VOCABULARY)
        )
        self.embed.to(device), self.rest.to(device)
        parameters = [*self.embed.parameters(), *self.rest.parameters()]
        self.optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=device.type == "cuda")
        self.ids = torch.randint(0, VOCABULARY, (batch, length + 1), device=device)

    def step(self):
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logits = self.rest(self.embed(self.ids[:, :-1]))
            loss = F.cross_entropy(logits.reshape(-1, VOCABULARY), self.ids[:, 1:].reshape(-1))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def measure(self, steps, warm=1):
        for _ in range(warm):
            self.step()
        self.wait()
        begin = time.perf_counter_ns()
        for _ in range(steps):
            self.step()
        self.wait()
        return time.perf_counter_ns() - begin


def main():
    device = torch.device(sys.argv[1] if len(sys.argv) > 1 else "cuda")
    torch.backends.cudnn.benchmark = False
    if device.type == "cuda":
        trainings = {"small": Training(device, 4, 256, 4, 64), "large": Training(device, 8, 1024, 16, 512)}
    else:  # only to see that this file works
        trainings = {"small": Training(device, 1, 64, 2, 16), "large": Training(device, 2, 128, 2, 32)}
    for training in trainings.values():
        training.measure(4, warm=4)
    print("ready", flush=True)
    gc.disable()  # nothing here makes cycles that grow, and a collection in one burst is none in the other
    for line in sys.stdin:
        words = line.split()
        if not words or words[0] == "quit":
            break
        print(trainings[words[0]].measure(int(words[1])), flush=True)


if __name__ == "__main__":
    main()
