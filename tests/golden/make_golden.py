"""Write tests/golden/law.json from the reference backend. Tests compare with the file and never write it.

    python tests/golden/make_golden.py

A change of a section is a change of the law: raise `spsample.law_version` with it (docs/law.md). The inputs are in
golden_cases.py; law_model.py, which knows nothing of spsample, confirms the results.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def build():
    """All sections of the file."""
    import golden_cases as cases

    import spsample as sp
    from spsample.backends import get_backend
    from spsample.backends.reference.random import Stream
    from spsample.sparse import derive_key

    reference = get_backend("reference")
    graphs, edges = cases.graphs(), cases.edge_lists()
    built = {name: cases.build_graph(given, edges) for name, given in graphs.items()}

    def draws(case):
        stream = Stream(tuple(case["key"]), case["vertex"], case["hop"], case["batch"])
        return stream.integers(range(case["count"]), case["total"], case["wide"]).tolist()

    def bulk(case):
        drawn = cases.sample("reference", case, built[case["graph"]])
        result = {**case, "sha256": cases.bulk_hash(drawn)}
        if len(case["seeds"]) <= cases.INLINE_LIMIT and case["graph"] in ("small", "small row", "small weighted"):
            result["first_minibatch"] = [cases.layer_arrays(layer) for layer in drawn[0].layers]
        return result

    counters = [*cases.KNOWN_ANSWERS, {"counter": [1, 2, 3, 4], "key": [5, 6]}]
    return {
        "law_version": sp.law_version,
        "philox": [{**case, "words": cases.philox(reference, case)} for case in counters],
        "keys": [{**k, "key": derive_key(k["random_seed"], k["epoch"], k["purpose"])} for k in cases.KEYS],
        "shuffles": [{**case, "order": cases.shuffled(reference, case)} for case in cases.SHUFFLES],
        "local_batches": [{**c, "batches": cases.local_batches(reference, c)} for c in cases.local_orders()],
        "draws": [{**case, "integers": draws(case)} for case in cases.DRAWS],
        "row_rule": [{"weights": w, "numerators": cases.row_rule(w)} for w in cases.WEIGHTS.values()],
        "quantised": [{**case, **cases.quantised(reference, case)} for case in cases.QUANTISED],
        "uniform_rows": [{**case, "positions": cases.uniform_row(reference, case)} for case in cases.UNIFORM_ROWS],
        "weighted_rows": [{**case, "positions": cases.weighted_row(reference, case)} for case in cases.WEIGHTED_ROWS],
        "entry_draws": [
            {**case, "sample": cases.entry_draw(reference, case, built[case["graph"]])} for case in cases.FRONTIERS
        ],
        "column_draws": [
            {**case, "sample": cases.column_draw(reference, case), "shared": cases.shared_draw(reference, case)}
            for case in cases.COLUMN_DRAWS
        ],
        "edges": [{"name": name, "source_target": pairs} for name, pairs in edges.items()],
        "graphs": [{"name": name, **given} for name, given in graphs.items()],
        "bulks": [bulk(case) for case in cases.bulks()],
    }


def dump(sections):
    """As JSON with one case on each line."""
    lines = []
    for name, cases in sections.items():
        if isinstance(cases, list):
            rows = ",\n  ".join(json.dumps(case, separators=(",", ":")) for case in cases)
            lines.append(f'"{name}": [\n  {rows}\n]')
        else:
            lines.append(f'"{name}": {json.dumps(cases)}')
    return "{" + ",\n".join(lines) + "}\n"


def main():
    target = HERE / "law.json"
    target.write_text(dump(build()))
    print(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
