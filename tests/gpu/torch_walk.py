"""A training or a generation that says where its own tensors are: for objects.py, which compares it with what Sublet says.

At a moment (the end of a forward pass, of a step, of a generation) it walks parameters, gradients, the optimizer's state, what
autograd saved or the KV cache, writes FOLDER/walk-MOMENT.json, and waits for FOLDER/taken-MOMENT before it goes on: until then
no tensor moves. The model is that of torch_train_generate.py."""

import argparse
import json
import os
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("what", choices=["train", "generate"])
parser.add_argument("folder")
parser.add_argument("--cache", choices=["dynamic", "static"], default="dynamic")
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--prompt", type=int, default=512)
parser.add_argument("--sequences", type=int, default=16)
parser.add_argument("--tokens", type=int, default=32)
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--device", default="cuda")
parser.add_argument("--empty-cache", action="store_true", help="after the first backward pass, and before generating")
parser.add_argument("--wait", type=float, default=60, help="seconds for an answer")
args = parser.parse_args()

# that program reads its own command line as it is imported
sys.argv = ["torch_train_generate.py", "--device", args.device, "--layers", str(args.layers), "--width", str(args.width)]
import torch
import torch_train_generate as program
from torch.nn import functional as F


def places(tensors):
    """[address, bytes] of each storage, once."""
    found = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if tensor.device.type == args.device and storage.nbytes():
            found[storage.data_ptr()] = storage.nbytes()
    return sorted(found.items())


def moment(name, kinds):
    if args.device == "cuda":
        torch.cuda.synchronize()
    path = os.path.join(args.folder, f"walk-{name}.json")
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump({"pid": os.getpid(), "tensors": kinds}, file)
    os.rename(path + ".part", path)
    taken, until = os.path.join(args.folder, f"taken-{name}"), time.monotonic() + args.wait
    while not os.path.exists(taken):
        if time.monotonic() > until:
            sys.exit(f"nobody took '{name}' in {args.wait:.0f} s")
        time.sleep(0.01)


def empty_cache():
    if args.empty_cache and args.device == "cuda":
        torch.cuda.empty_cache()


def state_of(optimizer):
    return [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]


def train(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    generator = torch.Generator().manual_seed(1)
    for step in range(args.steps):
        last = step == args.steps - 1
        ids = torch.randint(0, program.VOCABULARY, (8, 257), generator=generator).to(args.device)
        saved = []

        def pack(tensor):
            saved.append(tensor)
            return tensor

        # addresses are taken at the end of the pass, while autograd keeps these tensors
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            logits = program.logits_of(model, ids[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, program.VOCABULARY), ids[:, 1:].reshape(-1))
        if last:
            weights = dict(places(model.parameters()))
            activations = [place for place in places(saved) if place[0] not in weights]
            moment("forward", {"weights": places(model.parameters()), "activations": activations})
        del saved[:], logits
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        del loss
        if step == 0:
            empty_cache()
        optimizer.step()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    moment(
        "step",
        {"weights": places(model.parameters()), "gradients": places(gradients), "optimizer": places(state_of(optimizer))},
    )


def cache_of(answer):
    """Keys and values of all layers, by the names that releases of transformers gave them."""
    cache = getattr(answer, "cache", None)
    cache = answer.past_key_values if cache is None else cache
    layers = getattr(cache, "layers", None)
    if layers is not None:
        return [tensor for layer in layers for tensor in (layer.keys, layer.values)]
    return [*cache.key_cache, *cache.value_cache]


@torch.no_grad()
def generate(model):
    model.eval()
    ids = torch.randint(0, program.VOCABULARY, (args.sequences, args.prompt), generator=torch.Generator().manual_seed(2))
    ids = ids.to(args.device)
    empty_cache()
    extra = {"cache_implementation": "static", "disable_compile": True} if args.cache == "static" else {}
    answer = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=args.tokens,
        min_new_tokens=args.tokens,
        do_sample=False,
        pad_token_id=0,
        return_dict_in_generate=True,
        **extra,
    )
    moment("generated", {"weights": places(model.parameters()), "kv_cache": places(cache_of(answer))})


def main():
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    model = program.make_model().to(args.device)
    {"train": train, "generate": generate}[args.what](model)


if __name__ == "__main__":
    main()
