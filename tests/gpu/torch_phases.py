"""torch_phases.py train|rollout: one half of a reinforcement learning loop, for phases.py.

A trainer (a causal language model of transformers, AdamW, one flat gradient buffer that each iteration zeroes, as DeepSpeed and
Megatron have it) or a generation engine (another such model, a key-value cache of its full length that each iteration resets).
Random weights from a seeded configuration, synthetic text, no network, every switch that PyTorch has for determinism. Neither
knows Sublet; the trainer opens NVTX ranges under the names that NeMo-RL or DeepSpeed give them (--ranges).

It is told what to do a line at a time, `train K`, `generate K` or `end`, and answers with lines of which the last is "done": at
`end` the results as one JSON object (compare.py), "no-room WHAT BYTES" where the device has none, and then it ends with status 3.
`rewritten` in the results are allocations that hold nothing an iteration needs of the one before: [count, bytes of each]."""

import argparse
import contextlib
import hashlib
import json
import os
import sys
import time
import warnings

parser = argparse.ArgumentParser()
parser.add_argument("role", choices=["train", "rollout"])
parser.add_argument("--device", default="cuda")
parser.add_argument("--layers", type=int)
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--batch", type=int)
parser.add_argument("--length", type=int, help="tokens of a training sequence, or of the cache")
parser.add_argument("--tokens", type=int, default=24, help="generated in each iteration")
parser.add_argument("--ranges", choices=["nemo-rl", "deepspeed"], default="nemo-rl")
args = parser.parse_args()

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, PROMPT, OUT_OF_ROOM = 8192, 16, 3
SEGMENT_BYTES = 2 << 20  # PyTorch asks the driver for large blocks in multiples of it
device = torch.device(args.device)


def make_model(layers, dtype, length):
    """On the device, and made there: a copy on the host would be the slow part of the start."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=args.width,
        intermediate_size=args.width * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=args.width // 64,
        num_key_value_heads=args.width // 64,
        max_position_embeddings=length,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            # flash attention's backward pass adds with atomics, the eager one does not
            return AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def nvtx(framework, name):
    """A range as @framework opens it (its nvtx wrapper around a method of that name)."""
    if args.ranges != framework:
        yield
        return
    torch.cuda.nvtx.range_push(name)
    yield
    torch.cuda.nvtx.range_pop()


def digest(tensor):
    """Of every bit and where it is, computed where the tensor lies: sums of integers do not depend on their order."""
    words = tensor.detach().contiguous().reshape(-1)
    words = words.view(torch.int64 if words.dtype == torch.int64 else torch.int32 if words.element_size() == 4 else torch.int16)
    plain = weighted = 0
    for start in range(0, words.numel(), 1 << 24):
        part = words[start : start + (1 << 24)].to(torch.int64)
        places = torch.arange(start + 1, start + 1 + part.numel(), device=part.device)
        plain, weighted = plain + part.sum().item(), weighted + (part * places).sum().item()
    return f"{plain % (1 << 64):016x}{weighted % (1 << 64):016x}"


def digest_all(tensors):
    return hashlib.sha256(" ".join(digest(tensor) for tensor in tensors).encode()).hexdigest()


def give_back_freed():
    if device.type == "cuda":
        torch.cuda.empty_cache()


def rounded(size):
    return -(-size // SEGMENT_BYTES) * SEGMENT_BYTES


class Trainer:
    def __init__(self):
        length = args.length or 256
        self.batch, self.length = args.batch or 4, length
        self.model = make_model(args.layers or 18, torch.float32, length)
        parameters = list(self.model.parameters())
        give_back_freed()
        # One buffer, of which each gradient is a view: what an iteration leaves in it is zeroed by the next.
        self.gradients = torch.zeros(sum(p.numel() for p in parameters), device=device)
        at = 0
        for p in parameters:
            p.grad = self.gradients[at : at + p.numel()].view_as(p)
            at += p.numel()
        self.places = [p.grad.data_ptr() for p in parameters]
        # fused: no temporaries as large as the state
        self.optimizer = torch.optim.AdamW(parameters, lr=3e-4, fused=device.type == "cuda", foreach=False)
        self.losses = []
        self.rewritten = [1, rounded(self.gradients.numel() * 4)]

    def train(self, iteration):
        with nvtx("nemo-rl", "dtensor_policy_worker_v2/train"):
            generator = torch.Generator().manual_seed(1000 + iteration)
            start = torch.randint(0, 256, (self.batch, 1), generator=generator)
            with nvtx("deepspeed", "DeepSpeedEngine.forward"):
                ids = ((start + 17 * torch.arange(self.length + 1)) % 256).to(device)
                self.gradients.zero_()
                with torch.autocast(device.type, dtype=torch.bfloat16):
                    logits = self.model(input_ids=ids[:, :-1], use_cache=False).logits.float()
                    loss = F.cross_entropy(logits.reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))
            with nvtx("deepspeed", "DeepSpeedEngine.backward"):
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            with nvtx("deepspeed", "DeepSpeedEngine.step"):
                self.optimizer.step()
            self.losses.append(repr(loss.item()))

    def results(self):
        state = [self.optimizer.state[p][name] for p in self.model.parameters() for name in ("exp_avg", "exp_avg_sq")]
        places = [p.grad.data_ptr() for p in self.model.parameters()]
        return {
            "losses": self.losses,
            "parameters": digest_all(self.model.parameters()),
            "moments": digest_all(state),
            "gradients stay in their buffer": places == self.places,
            "learnt": float(self.losses[-1]) < float(self.losses[0]),
        }


class Rollout:
    def __init__(self):
        from transformers import StaticCache

        self.batch, length, layers = args.batch or 8, args.length or 4096, args.layers or 24
        self.model = make_model(layers, torch.bfloat16, length).eval()
        self.cache = StaticCache(config=self.model.config, max_cache_len=length)
        # nothing that was freed is left to be used again: each tensor of it is an allocation of its own
        give_back_freed()
        self.cache.early_initialization(self.batch, args.width // 64, 64, torch.bfloat16, device)
        tensors = [t for layer in self.cache.layers for t in (layer.keys, layer.values)]
        self.rewritten = [len(tensors), rounded(tensors[0].numel() * 2)]
        self.tokens = []

    @torch.no_grad()
    def generate(self, iteration):
        self.cache.reset()
        prompt = (torch.arange(PROMPT).repeat(self.batch, 1) * 17 + torch.arange(self.batch)[:, None] * 101 + iteration) % 256
        prompt = prompt.to(device)
        torch.manual_seed(iteration)
        # no top_p: it needs a cumulative sum, which has no deterministic form on the device
        answer = self.model.generate(
            input_ids=prompt, attention_mask=torch.ones_like(prompt), past_key_values=self.cache, max_new_tokens=args.tokens,
            min_new_tokens=args.tokens, pad_token_id=0, do_sample=True, top_k=40, temperature=0.8, disable_compile=True,
        )
        self.tokens.append(answer[:, PROMPT:].cpu().flatten().tolist())

    def results(self):
        return {"tokens": self.tokens, "weights": digest_all(self.model.parameters())}


def say(text):
    print(text, flush=True)


def serve():
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    begin = time.monotonic()
    work = Trainer() if args.role == "train" else Rollout()
    if device.type == "cuda":
        torch.cuda.synchronize()
    info = {"start s": round(time.monotonic() - begin, 2), "rewritten": work.rewritten, "torch": torch.__version__}
    say("done")
    for line in sys.stdin:
        word, *rest = line.split()
        if word in ("train", "generate"):
            getattr(work, word)(int(rest[0]))
            if device.type == "cuda":
                torch.cuda.synchronize()
        elif word == "end":
            if device.type == "cuda":
                info["peak bytes"] = torch.cuda.max_memory_reserved()
            say(json.dumps({"exact": work.results(), "loose": {}, "info": info}))
        else:
            return
        say("done")


def main():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some operators have no deterministic form; the plain runs show whether that matters
        try:
            serve()
        except RuntimeError as error:
            text = " ".join(str(error).split())
            if not any(word in text for word in ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED")):
                raise
            say(f"no-room {text[:200]}")
            sys.exit(OUT_OF_ROOM)


if __name__ == "__main__":
    main()
