"""Train a small causal language model, then generate with it; print what came out.

Random weights from a seeded configuration, synthetic text, no network. With --deterministic every switch PyTorch
has for it is on, and plain runs agree bit for bit; without, they differ by the order of atomic additions.
The last line of output is one JSON object (see compare.py)."""

import argparse
import hashlib
import json
import os
import sys
import time
import warnings

START = time.monotonic()
parser = argparse.ArgumentParser()
parser.add_argument("--deterministic", action="store_true")
parser.add_argument("--model", choices=["llama", "gpt"], default="llama", help="gpt: our own, needs no transformers")
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tokens", type=int, default=64)
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--length", type=int, default=256)
parser.add_argument("--device", default="cuda")
parser.add_argument("--progress", metavar="FILE", help="a line for each step and each token, for who watches from outside")
args = parser.parse_args()

if args.deterministic:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 8192
progress = open(args.progress, "w", buffering=1) if args.progress else None


def did(what):
    if progress:
        print(what, file=progress)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) * (width // self.heads) ** -0.5 + mask[:length, :length]
        mixed = (scores.float().softmax(-1).to(v.dtype) @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, layers, width, length):
        super().__init__()
        self.embed, self.place = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, ids):
        x = self.embed(ids) + self.place.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))


def make_model():
    if args.model == "gpt":
        return Gpt(args.layers, args.width, max(args.length, 16 + args.tokens))
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=args.width,
        intermediate_size=args.width * 11 // 4,
        num_hidden_layers=args.layers,
        num_attention_heads=args.width // 64,
        num_key_value_heads=max(1, args.width // 128),
        max_position_embeddings=1024,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    # flash attention's backward pass adds with atomics, the eager one does not
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager" if args.deterministic else "sdpa")


def logits_of(model, ids):
    out = model(ids) if args.model == "gpt" else model(input_ids=ids, use_cache=False).logits
    return out.float()


def train(model, device):
    """A third of the steps in fp32, the rest under bf16 autocast."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for step in range(args.steps):
        start = torch.randint(0, 256, (args.batch, 1), generator=generator)
        ids = ((start + 17 * torch.arange(args.length + 1)) % 256).to(device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=step >= args.steps // 3):
            logits = logits_of(model, ids[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        did(f"step {step}")
    return losses


@torch.no_grad()
def generate(model, device):
    prompt = (torch.arange(16).repeat(4, 1) * 17 + torch.arange(4)[:, None] * 101).to(device) % 256
    model.eval()
    if args.model == "gpt":
        answers = []
        for sample in (False, True):
            ids = prompt
            for _ in range(args.tokens):
                logits = logits_of(model, ids)[:, -1]
                following = logits.softmax(-1).multinomial(1) if sample else logits.argmax(-1, keepdim=True)
                ids = torch.cat([ids, following], 1)
                did("token")
            answers.append(ids)
        return answers
    mask = torch.ones_like(prompt)
    model.register_forward_hook(lambda *_: did("token"))
    common = dict(
        input_ids=prompt, attention_mask=mask, max_new_tokens=args.tokens, min_new_tokens=args.tokens, pad_token_id=0
    )
    greedy = model.generate(**common, do_sample=False)
    torch.manual_seed(7)
    # no top_p: it needs a cumulative sum, which has no deterministic form on the device
    sampled = model.generate(**common, do_sample=True, top_k=40, temperature=0.8)
    return greedy, sampled


def digest(tensors):
    state = hashlib.sha256()
    for tensor in tensors:
        state.update(tensor.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return state.hexdigest()


def main():
    device = torch.device(args.device)
    imported = time.monotonic()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    if args.deterministic:
        torch.use_deterministic_algorithms(True, warn_only=True)
    caught = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model = make_model().to(device)
        addresses = [p.data_ptr() for p in model.parameters()]
        losses = train(model, device)
        greedy, sampled = generate(model, device)
        caught = [str(w.message) for w in seen if "deterministic" in str(w.message)]
    moved = sum(p.data_ptr() != a for p, a in zip(model.parameters(), addresses))
    squares = float(sum(p.detach().double().square().sum() for p in model.parameters()))
    result = {"exact": {"parameters moved": moved, "steps": len(losses)}, "loose": {}, "info": {}}
    if args.deterministic:
        result["exact"].update(
            {
                "losses": [repr(x) for x in losses],
                "parameters": digest(model.parameters()),
                "greedy": digest([greedy]),
                "sampled": digest([sampled]),
            }
        )
    else:
        result["loose"].update({"losses": losses, "parameter squares": squares})
        result["info"].update({"greedy": digest([greedy])[:12], "sampled": digest([sampled])[:12]})
    result["exact"]["learnt"] = losses[-1] < losses[0]
    result["info"].update(
        {
            "first and last loss": [losses[0], losses[-1]],
            "warnings about determinism": caught[:5],
            "import s": round(imported - START, 2),
            "total s": round(time.monotonic() - START, 2),
            "torch": torch.__version__,
        }
    )
    if args.model == "llama":
        import transformers

        result["info"]["transformers"] = transformers.__version__
    if device.type == "cuda":
        result["info"]["peak reserved MiB"] = torch.cuda.max_memory_reserved() >> 20
    print(json.dumps(result))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
