"""Golden vectors: every backend returns what law.json says, and so does a model of the law that knows none of them."""

from __future__ import annotations

import json
from pathlib import Path

import golden_cases as cases
import law_model
import pytest
from emulated_backend import emulated, needs_compiler
from on_host import OnHost

import spsample as sp
from spsample.backends import available_backends, get_backend
from spsample.backends.reference.random import Stream
from spsample.sparse import derive_key

__all__ = ["emulated"]

FILE = Path(__file__).with_name("law.json")


@pytest.fixture(scope="module")
def golden():
    return json.loads(FILE.read_text())


@pytest.fixture(scope="module")
def edges(golden):
    return {case["name"]: case["source_target"] for case in golden["edges"]}


@pytest.fixture(scope="module")
def graphs(golden, edges):
    return {given["name"]: cases.build_graph(given, edges) for given in golden["graphs"]}


@pytest.fixture(scope="module")
def model_graphs(golden, edges):
    return {
        given["name"]: law_model.ModelGraph.from_edges(
            given["num_nodes"],
            edges[given["edges"]],
            given["weights"],
            given["weighting"],
            given["dtype"] == "float32",
        )
        for given in golden["graphs"]
    }


def each(section):
    """The section's cases, with a check that there are some."""
    assert section
    return section


def test_law_version(golden):
    assert golden["law_version"] == sp.law_version == 1


@pytest.mark.parametrize("name", [*available_backends(), pytest.param("cuda", marks=needs_compiler)])
class TestBackends:
    """What every backend returns."""

    @pytest.fixture
    def backend(self, name, request):
        if name != "cuda":
            return get_backend(name)
        request.getfixturevalue("emulated")
        return OnHost(get_backend(name))

    def test_known_answers(self, backend, golden):
        assert golden["philox"][:3] == cases.KNOWN_ANSWERS
        for case in each(golden["philox"]):
            assert cases.philox(backend, case) == case["words"]

    def test_shuffles(self, backend, golden):
        for case in each(golden["shuffles"]):
            assert cases.shuffled(backend, case) == case["order"]
            public = sp.shuffle(case["count"], case["random_seed"], case["epoch"])
            assert public.tolist() == case["order"]

    def test_local_batches(self, backend, golden):
        for case in each(golden["local_batches"]):
            assert cases.local_batches(backend, case) == case["batches"], case

    def test_quantised(self, backend, golden):
        for case in each(golden["quantised"]):
            expected = {name: case[name] for name in ("numerators", "exponent")}
            assert cases.quantised(backend, case) == expected, case

    def test_uniform_rows(self, backend, golden):
        for case in each(golden["uniform_rows"]):
            assert cases.uniform_row(backend, case) == case["positions"], case

    def test_weighted_rows(self, backend, golden):
        for case in each(golden["weighted_rows"]):
            assert cases.weighted_row(backend, case) == case["positions"], case

    def test_entry_draws(self, backend, golden, graphs):
        for case in each(golden["entry_draws"]):
            assert cases.entry_draw(backend, case, graphs[case["graph"]]) == case["sample"], case

    def test_column_draws(self, backend, golden):
        for case in each(golden["column_draws"]):
            assert cases.column_draw(backend, case) == case["sample"], case
            assert cases.shared_draw(backend, case) == case["shared"], case

    def test_bulks(self, backend, golden, graphs):
        for case in each(golden["bulks"]):
            bulk = cases.sample(backend.name, case, graphs[case["graph"]]).to_host()
            if "first_minibatch" in case:
                assert [cases.layer_arrays(layer) for layer in bulk[0].layers] == case["first_minibatch"], case
            assert cases.bulk_hash(bulk) == case["sha256"], {k: v for k, v in case.items() if k != "first_minibatch"}


class TestSharedCode:
    """What is computed once for all backends."""

    def test_keys(self, golden):
        for case in each(golden["keys"]):
            key = derive_key(case["random_seed"], case["epoch"], case["purpose"])
            assert list(key) == case["key"]

    def test_draws(self, golden):
        for case in each(golden["draws"]):
            stream = Stream(tuple(case["key"]), case["vertex"], case["hop"], case["batch"])
            drawn = stream.integers(range(case["count"]), case["total"], case["wide"])
            assert drawn.tolist() == case["integers"], case

    def test_row_rule(self, golden):
        for case in each(golden["row_rule"]):
            assert cases.row_rule(case["weights"]) == case["numerators"], case


class TestModel:
    """What law_model.py, written from docs/law.md in plain Python integers, makes of the same inputs."""

    def test_known_answers(self, golden):
        for case in golden["philox"]:
            assert law_model.philox(case["counter"], case["key"]) == case["words"]

    def test_keys(self, golden):
        for case in golden["keys"]:
            key = law_model.derive_key(case["random_seed"], case["epoch"], case["purpose"])
            assert list(key) == case["key"]

    def test_shuffles(self, golden):
        for case in golden["shuffles"]:
            assert law_model.shuffle(case["count"], case["random_seed"], case["epoch"]) == case["order"]

    def test_local_batches(self, golden):
        empty, uneven = 0, 0
        for case in golden["local_batches"]:
            order = law_model.shuffle(case["count"], case["random_seed"], case["epoch"])
            order = order if case["shuffle"] else list(range(case["count"]))
            dealt = (case["parts"], case["num_parts"], case["ranks"], case["batch_size"])
            assert law_model.local_batches(order, *dealt) == case["batches"], case
            sizes = {len(batch) for batch in case["batches"]}
            empty += 0 in sizes
            uneven += len(sizes) > 2
        assert empty > 2
        assert uneven > 2

    def test_draws(self, golden):
        rejected = 0
        for case in golden["draws"]:
            stream = law_model.Stream(case["key"], case["vertex"], case["hop"], case["batch"])
            drawn = [stream.integer(j, case["total"], case["wide"]) for j in range(case["count"])]
            assert drawn == case["integers"], case
            rejected += len(stream.rejected)
        assert rejected > 100

    def test_row_rule(self, golden):
        shifts = set()
        for case in golden["row_rule"]:
            assert law_model.row_numerators(case["weights"]) == case["numerators"], case
            shifts.add(sum(case["numerators"]) > 2**32)
        assert shifts == {False, True}

    def test_quantised(self, golden):
        for case in golden["quantised"]:
            exact = [law_model.quantize(w, case["shift"], case["power"]) for w in case["weights"]]
            assert [n ** case["column_power"] for n in exact] == case["numerators"], case
            positive = [law_model.exponent(w) for w in case["weights"] if w > 0]
            assert case["exponent"] == max(positive, default=-(2**31))

    def test_uniform_rows(self, golden):
        for case in golden["uniform_rows"]:
            row = law_model.ModelGraph({case["vertex"]: [None] * case["degree"]})
            stream = law_model.Stream(case["key"], case["vertex"], case["hop"], case["batch"])
            options = {"weighted": False, "replace": case["replace"]}
            places = law_model.sample_row(row, stream, case["vertex"], case["size"], **options)
            assert places == case["positions"], case

    def test_one_floyd_row_by_hand(self, golden):
        """The law's sentence, spelled out once more without the model's functions but for Philox."""
        case = next(c for c in golden["uniform_rows"] if (c["degree"], c["size"], c["replace"]) == (40, 10, False))
        chosen = []
        for j in range(10):
            words = law_model.philox((case["vertex"], case["hop"] << 16, j // 4, case["batch"]), case["key"])
            bound = 40 - 10 + j + 1
            product = words[j % 4] * bound
            assert product % 2**32 >= 2**32 % bound  # no rejection in this row
            t = product // 2**32
            chosen.append(t if t not in chosen else bound - 1)
        assert chosen == case["positions"]

    def test_one_weighted_row_by_hand(self, golden):
        """Weights 1, 2, 3, 4, 0, 6: E = 3, D = 5, K = 26, so N = w 2^26 and T = 2^30: no word is ever rejected."""
        weights = [1.0, 2.0, 3.0, 4.0, 0.0, 6.0]
        case = next(c for c in golden["weighted_rows"] if (c["weights"], c["size"]) == (weights, 2) and c["replace"])
        drawn = []
        for j in range(2):
            words = law_model.philox((case["vertex"], case["hop"] << 16, 0, case["batch"]), case["key"])
            x = words[j] * 2**30 // 2**32
            drawn.append(next(e for e in range(6) if sum(weights[: e + 1]) * 2**26 > x))
        assert drawn == case["positions"]

    def test_weighted_rows(self, golden):
        most = 0
        for case in golden["weighted_rows"]:
            row = law_model.ModelGraph({case["vertex"]: [(k, w, k) for k, w in enumerate(case["weights"])]})
            stream = CountingStream(case["key"], case["vertex"], case["hop"], case["batch"])
            options = {"weighted": True, "replace": case["replace"]}
            places = law_model.sample_row(row, stream, case["vertex"], case["size"], **options)
            assert places == case["positions"], case
            most = max(most, stream.draws / case["size"])
        assert most > 8  # some rows go through three rounds of 4 s draws

    def test_entry_draws(self, golden, model_graphs):
        most = 0
        for case in golden["entry_draws"]:
            rows = model_graphs[case["graph"]].rows
            q = cases.frontier_numerators(case) or [1] * len(case["frontier"])
            entries = [(v, n) for i, n in zip(case["frontier"], q, strict=True) for v, _, _ in rows[i]]
            stream = CountingStream(case["key"], 0, case["hop"], case["batch"])
            check_columns(case, entries, stream, case["sample"])
            most = max(most, stream.draws / case["size"])
        assert most > 4

    def test_column_draws(self, golden):
        most = 0
        for case in golden["column_draws"]:
            for name, columns in (
                ("sample", range(10, 10 + 2 * len(case["numerators"]), 2)),
                ("shared", range(len(case["numerators"]))),
            ):
                stream = CountingStream(case["key"], 0, case["hop"], case["batch"])
                check_columns(case, list(zip(columns, case["numerators"], strict=True)), stream, case[name])
                most = max(most, stream.draws / case["size"])
        assert most > 8

    def test_bulks(self, golden, model_graphs):
        """Every minibatch of every bulk: the hash is that of the model's own arrays."""
        for case in golden["bulks"]:
            minibatches = model_bulk(case, model_graphs[case["graph"]])
            if "first_minibatch" in case:
                assert minibatches[0] == case["first_minibatch"], case
            dtype = "<f4" if model_graphs[case["graph"]].single else "<f8"
            assert cases.hash_of_lists(minibatches, dtype) == case["sha256"], case["sampler"]


class CountingStream(law_model.Stream):
    """Counts its draws."""

    draws = 0

    def integer(self, j, t, wide):
        self.draws = max(self.draws, j + 1)
        return super().integer(j, t, wide)


def check_columns(case, entries, stream, expected):
    """The first s distinct columns of `entries` (column, numerator), or draws with replacement merged."""
    columns, numerators = [v for v, _ in entries], [n for _, n in entries]
    draw = law_model.with_replacement if case["replace"] else law_model.first_distinct
    drawn = draw(stream, columns, numerators, case["size"])
    distinct = list(dict.fromkeys(drawn))
    support = len({v for v, n in entries if n > 0})
    assert expected == {
        "columns": distinct,
        "counts": [drawn.count(v) for v in distinct],
        "total": sum(numerators),
        "whole": not case["replace"] and support <= case["size"],
    }, case


def model_bulk(case, graph):
    size = case["batch_size"]
    seeds = [case["seeds"][at : at + size] for at in range(0, len(case["seeds"]), size)]
    return [
        law_model.sample_batch(
            graph,
            batch,
            case["sampler"],
            case["sizes"],
            case["options"],
            random_seed=case["random_seed"],
            epoch=case["epoch"],
            batch_id=case["first_batch"] + i,
        )
        for i, batch in enumerate(seeds)
    ]
