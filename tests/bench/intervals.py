"""Medians with intervals, standard library only.

Samples come in rounds: each round is one pair of fresh processes, each sample in it one burst of both, one after the
other. Bursts of one round share what the two processes were dealt (addresses, physical pages, a core), so the interval
resamples rounds first and then bursts inside them."""

import random


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def percentile(values, percent):
    """The smallest value that at least @percent of the values do not exceed."""
    values = sorted(values)
    return values[max(0, min(len(values) - 1, -(-len(values) * percent // 100) - 1))]


def interval(rounds, of=median, confidence=0.95, resamples=2000, seed=1):
    """(value, low, high) of @of over all samples of @rounds, a list of lists. One sample: that point."""
    rounds = [r for r in rounds if r]
    source = random.Random(seed)
    value = of([x for r in rounds for x in r])
    outcomes = []
    for _ in range(resamples):
        chosen = source.choices(rounds, k=len(rounds))
        outcomes.append(of([x for r in chosen for x in source.choices(r, k=len(r))]))
    outcomes.sort()
    edge = (1 - confidence) / 2
    low = outcomes[int(edge * (resamples - 1))]
    high = outcomes[int((1 - edge) * (resamples - 1) + 0.5)]
    return value, low, high


def ratios(pairs_by_round):
    """second / first of each pair"""
    return [[b / a for a, b in pairs] for pairs in pairs_by_round]


def differences(pairs_by_round):
    return [[b - a for a, b in pairs] for pairs in pairs_by_round]


def judge(value, low, high, bar, at_least):
    """pass, FAIL, or pass with the interval across the bar."""
    good = value >= bar if at_least else value <= bar
    if not good:
        return "FAIL"
    clear = low >= bar if at_least else high <= bar
    return "pass" if clear else "pass, interval crosses the bar"
