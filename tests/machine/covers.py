"""Covers: a few cases in place of a full product, in which every pair of values of two factors is together."""

from __future__ import annotations

from itertools import combinations, product


def pairs(*factors):
    """Cases with a value of each factor, the same ones every time; every two values are together in one of them.

    There are hardly more than the two longest factors have in their product.
    """
    factors = [list(factor) for factor in factors]
    missing = {
        (i, a, j, b): None
        for i, j in combinations(range(len(factors)), 2)
        for a, b in product(range(len(factors[i])), range(len(factors[j])))
    }
    rows = []
    while missing:
        i, a, j, b = next(iter(missing))
        row = {i: a, j: b}
        for k in sorted(set(range(len(factors))) - row.keys(), key=lambda k: -len(factors[k])):

            def gain(value, k=k, row=row):
                return sum(ordered(k, value, *one) in missing for one in row.items())

            turn = len(rows) % len(factors[k])  # where values gain the same, each has its turn
            values = [*range(turn, len(factors[k])), *range(turn)]
            row[k] = max(values, key=gain)
        for one, other in combinations(row.items(), 2):
            missing.pop(ordered(*one, *other), None)
        rows.append(tuple(factors[k][row[k]] for k in range(len(factors))))
    return rows


def ordered(i, a, j, b):
    return (i, a, j, b) if i < j else (j, b, i, a)
