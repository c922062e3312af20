"""The sampler cases of tools/make_golden.py: what Hugging Face's logits processors leave of the tiny model's logits.

Order: repetition penalty, presence penalty, temperature, top-k, top-p, min-p. The presence penalty, which transformers
does not have, is its plain definition: subtracted once from the logit of every token seen.
"""

NAMES = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty")
DEFAULTS = dict(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0)

OPTIONS = [
    dict(),
    dict(temperature=0.0),
    dict(temperature=0.0, repetition_penalty=1.5),
    dict(temperature=0.0, presence_penalty=1.0),
    dict(temperature=0.6, top_k=20, top_p=0.95),
    dict(temperature=0.7, top_k=20, top_p=0.8),
    dict(temperature=0.01),
    dict(temperature=0.0001),
    dict(temperature=5.0, top_k=50),
    dict(temperature=1000.0, top_k=40),
    dict(temperature=1e30),
    dict(top_k=1),
    dict(top_k=2),
    dict(top_k=5),
    dict(top_k=2073),
    dict(top_k=100000, top_p=0.9),
    dict(top_p=0.0),
    dict(top_p=0.05),
    dict(top_p=0.5),
    dict(top_p=0.9),
    dict(top_p=0.999),
    dict(top_p=0.0, temperature=100.0),
    dict(min_p=1.0),
    dict(min_p=0.5),
    dict(min_p=0.1),
    dict(min_p=0.01),
    dict(min_p=0.9, temperature=3.0),
    dict(top_k=8, top_p=0.6),
    dict(top_k=8, min_p=0.2),
    dict(top_p=0.9, min_p=0.15),
    dict(top_k=12, top_p=0.97, min_p=0.02, temperature=1.5),
    dict(repetition_penalty=1.3, top_k=20),
    dict(repetition_penalty=0.5, top_k=20),
    dict(repetition_penalty=3.0, top_p=0.9),
    dict(presence_penalty=1.5, top_k=20),
    dict(presence_penalty=-1.5, top_k=20),
    dict(presence_penalty=2.0, min_p=0.05),
    dict(repetition_penalty=1.2, presence_penalty=0.5, temperature=0.8, top_k=30, top_p=0.95, min_p=0.02),
]

# Ties: each of these gives the logits of the best tokens (by rank, from 0) the value of another rank first.
TIES = [
    ("two best tie", {1: 0}, dict(top_k=1)),
    ("two best tie", {1: 0}, dict(temperature=0.0)),
    ("two best tie", {1: 0}, dict(min_p=1.0)),
    ("ranks 2, 3 and 4 tie", {3: 2, 4: 2}, dict(top_k=3)),
    ("ranks 2, 3 and 4 tie", {3: 2, 4: 2}, dict(top_k=5, temperature=0.5)),
]


def survivors(scores, history, options):
    """scores: fp32 [ids]; -> (ids, probabilities), most likely first, ties by id, by Hugging Face's processors."""
    import torch
    from transformers import (LogitsProcessorList, MinPLogitsWarper, RepetitionPenaltyLogitsProcessor,
                              TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)

    o, seen = {**DEFAULTS, **options}, torch.tensor([history])
    scores = scores.clone()[None]
    if o["repetition_penalty"] != 1:
        scores = RepetitionPenaltyLogitsProcessor(o["repetition_penalty"])(seen, scores)
    if o["presence_penalty"] != 0:
        scores[0, sorted(set(history))] -= o["presence_penalty"]
    if o["temperature"] == 0:  # greedy
        return [scores[0].argmax().item()], [1.0]
    warpers = LogitsProcessorList([TemperatureLogitsWarper(float(o["temperature"]))])
    if o["top_k"]:
        warpers.append(TopKLogitsWarper(o["top_k"]))
    if o["top_p"] < 1:
        warpers.append(TopPLogitsWarper(float(o["top_p"])))
    if o["min_p"] > 0:
        warpers.append(MinPLogitsWarper(o["min_p"]))
    left = warpers(seen, scores)[0]
    ids = (left > -torch.inf).nonzero()[:, 0]
    probabilities = torch.softmax(left[ids].double(), -1)
    order = sorted(range(len(ids)), key=lambda i: (-scores[0, ids[i]].item(), ids[i].item()))
    return [ids[i].item() for i in order], [probabilities[i].item() for i in order]


def check_robust(name, scores, history, options, expected):
    """A case must not hang on the last bits: the same ids survive when every logit moves by up to 2e-5."""
    import torch

    generator = torch.Generator().manual_seed(1)
    for _ in range(16):
        moved = scores + (torch.rand(scores.shape, generator=generator) * 2 - 1) * 2e-5
        if set(survivors(moved, history, options)[0]) != set(expected):
            raise SystemExit(f"sampler case {name}: a filter's border is within rounding; choose another value")


def sampler_cases(scores, tokens):
    """scores: fp32 [ids], the logits after `tokens` -> the cases of golden/sampler_cases.json."""
    ranked = scores.sort(descending=True, stable=True).indices.tolist()
    seen = sorted(ranked.index(t) for t in set(tokens) if ranked.index(t) < 20)
    print(f"sampler: best logits {[round(v, 3) for v in scores[ranked[:12]].tolist()]}, ranks of seen ones {seen}")
    cases = []

    def add(name, edits, options):
        edited = scores.clone()
        for id, source in edits:
            edited[id] = scores[source]
        ids, probabilities = survivors(edited, tokens, options)
        name = ", ".join(filter(None, [name, " ".join(f"{k}={v:g}" for k, v in options.items()) or "defaults"]))
        if not edits:
            check_robust(name, scores, tokens, options, ids)
        cases.append({"name": name, "options": options, "edits": edits, "ids": ids,
                      "probabilities": [float(f"{p:.9g}") for p in probabilities]})

    for options in OPTIONS:
        add("", [], options)
    for name, ranks, options in TIES:
        add(name, [[ranked[rank], ranked[source]] for rank, source in ranks.items()], options)
    return {
        "about": "What Hugging Face's logits processors leave of the logits, most likely first, ties by id. Options "
                 "not named have their default. Each edit [a, b] gives id a the logit of id b first: such a case is "
                 "for a test of the sampler alone, the command line cannot show it.",
        "defaults": DEFAULTS, "cases": cases}
