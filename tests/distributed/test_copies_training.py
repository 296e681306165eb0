"""Training with copies of rows on ranks, and with draws that prefer what a rank keeps."""

import copy
import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from training_cases import DATA, Seen, on_ranks  # noqa: E402

import spsample as sp  # noqa: E402
from spsample.comm import run_threads  # noqa: E402
from spsample.data import part_dataset  # noqa: E402
from spsample.errors import DataError, InputError, SpSampleError  # noqa: E402
from spsample.training import ModelConfig, TrainConfig, Trainer  # noqa: E402

TIMEOUT, RANKS = 60.0, 4
PARTS = np.random.default_rng(0).integers(0, RANKS, DATA.graph.num_nodes)
PAIRS = "0 0.2 1 1\n0.2 0 1 1\n1 1 0 0.2\n1 1 0.2 0\n"
"""Two pairs of ranks whose links are fast."""


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trainer_of(comm, seen=(), kind="replicated", sampler=None, part=None, **settings):
    config = {"epochs": 2, "batch_size": 16, "learning_rate": 0.02, "bulk_size": 8, **settings}
    model = ModelConfig(hidden=16, dropout=0.2)
    local = PARTS if kind == "replicated" and settings.get("batches") == "local" else None
    data = on_ranks(comm, kind=kind)
    if kind == "replicated" and part is None:
        data = dataclasses.replace(data, x=DATA.x)  # all features, on every rank
    sampler = sampler or sp.GraphSAGE([5, 3])
    return Trainer(data, sampler, model, TrainConfig(**config), list(seen), parts=local, part=part)


def run(comm, **settings):
    trainer = trainer_of(comm, [seen := Seen()], **settings)
    result = trainer.fit()
    needed, trained = trainer.pipeline.setup, trainer.loader.features
    trainer.close()
    return seen.losses, result, needed, trained


@pytest.mark.parametrize(
    ("method", "alpha", "kind", "batches"),
    [
        ("best-copies", 0.3, "replicated", "shuffled"),
        ("best-copies", "pairs", "replicated", "local"),
        ("best-copies", "pairs", "partitioned", "shuffled"),
        ("best-copies", 0.3, "partitioned", "shuffled"),
        ("song-jiang", 0.3, "partitioned", "shuffled"),
        ("interleaved", 0.3, "replicated", "local"),
        ("replicated", 2.0, "partitioned", "shuffled"),
    ],
)
def test_copies_change_no_loss_and_give_what_the_plan_says(tmp_path, method, alpha, kind, batches):
    (tmp_path / "links.txt").write_text(PAIRS)
    alpha = str(tmp_path / "links.txt") if alpha == "pairs" else alpha
    common = {"kind": kind, "batches": batches, "epochs": 6}
    budget = 4 * DATA.x.shape[1] * 40 + 2 * DATA.graph.num_nodes
    plain = run_threads(RANKS, lambda comm: run(comm, **common)[:1], TIMEOUT)
    settings = {"copies": method, "alpha": alpha, "cache_budget": budget, "cache_score": "inclusion", **common}
    copied = run_threads(RANKS, lambda comm: run(comm, **settings), TIMEOUT)
    assert [losses for losses, *_ in copied] == [losses for (losses,) in plain]
    counts = [result.cache for _, result, *_ in copied]
    rows = {name: sum(count[name] for count in counts) for name in counts[0]}
    total = rows["hits"] + rows["peer_hits"] + rows["misses"]
    (note,) = copied[0][1].notes[:1]
    assert note.startswith(f"copies by {method}, ")
    said = [float(word.rstrip("%")) / 100 for word in note.split() if word.endswith("%")]
    for expected, name in zip(said, ("hits", "peer_hits", "misses"), strict=True):
        assert rows[name] / total == pytest.approx(expected, abs=0.02), name
    cost = float(note.split("cost ")[1].split()[0])
    assert (rows["misses"] + rows["peer_cost"]) / total == pytest.approx(cost, abs=0.02)
    assert (rows["peer_hits"] > 0) == (method != "replicated")
    row_bytes = 4 * DATA.x.shape[1]
    assert all(count["peer_bytes"] == row_bytes * count["peer_hits"] for count in counts)


def test_counts_of_a_resumed_run_go_on():
    settings = {"copies": "best-copies", "alpha": 0.5, "cache_budget": "1KiB"}

    def rest(comm, state):
        trainer = trainer_of(comm, [seen := Seen()], **settings)
        trainer.load_state_dict(copy.deepcopy(state))
        return seen, trainer.fit()

    def whole(comm):
        trainer = trainer_of(comm, [seen := Seen(save_at=2)], prefetch=0, **settings)
        return seen, trainer.fit()

    seen, expected = run_threads(RANKS, whole, TIMEOUT)[0]
    for resumed, result in run_threads(RANKS, lambda comm: rest(comm, seen.state), TIMEOUT)[:1]:
        assert resumed.losses == seen.losses[2:]
        assert result.cache == expected.cache
        assert result.cache["peer_hits"] > 0


@pytest.mark.parametrize("importance_weights", [False, True])
@pytest.mark.parametrize("layout", ["blocks", "subgraph"])
def test_each_rank_prefers_its_own_set(layout, importance_weights):
    """Batch for batch what one process draws that prefers the set of the rank whose batch it is."""
    rng = np.random.default_rng(3)
    sets = [rng.permutation(DATA.graph.num_nodes)[: 40 * (1 + rank)] for rank in range(RANKS)]
    seeds, options = np.arange(300), {"batch_size": 16, "random_seed": 5}
    plain = sp.GraphSAGE([4, 3], layout=layout)

    def body(comm):
        sampler = sp.Biased(plain, sets, 8, rank=comm.rank, importance_weights=importance_weights)
        graph = sp.ReplicatedGraph(DATA.graph, comm)
        return sp.bulk_sample(graph, seeds, sampler.with_sizes([5, 3]), **options)

    bulks = run_threads(RANKS, body, TIMEOUT)
    for own, bulk in zip(sets, bulks, strict=True):
        alone = sp.Biased(plain.with_sizes([5, 3]), own, 8, importance_weights=importance_weights)
        expected = sp.bulk_sample(DATA.graph, seeds, alone, **options)
        for batch in bulk:
            theirs = expected[batch.batch_id]
            np.testing.assert_array_equal(batch.src_nodes, theirs.src_nodes)
            for mine, other in zip(batch.layers, theirs.layers, strict=True):
                np.testing.assert_array_equal(mine.adj.indices, other.adj.indices)
                np.testing.assert_array_equal(mine.adj.data, other.adj.data)


@pytest.mark.parametrize("kept", [{}, {"copies": "best-copies", "alpha": 0.3}], ids=["cache", "copies"])
@pytest.mark.parametrize("kind", ["replicated", "partitioned"])
def test_a_factor_of_1_is_the_plain_run(kind, kept):
    settings = {"kind": kind, "cache_budget": "1KiB", **kept}
    plain = run_threads(RANKS, lambda comm: run(comm, **settings)[0], TIMEOUT)
    same = run_threads(RANKS, lambda comm: run(comm, biased=1.0, importance_weights=True, **settings)[0], TIMEOUT)
    assert same == plain


@pytest.mark.parametrize("importance_weights", [False, True])
@pytest.mark.parametrize("kept", [{}, {"copies": "best-copies", "alpha": 0.3}], ids=["cache", "copies"])
def test_a_preference_fetches_fewer_rows_and_goes_on_bit_for_bit(kept, importance_weights):
    settings = {"cache_budget": "1KiB", **kept, "epochs": 3}
    biased = {"biased": 1e6, "importance_weights": importance_weights, **settings}

    def misses(comm, **settings):
        count = run(comm, **settings)[1].cache
        return count["misses"] + count["peer_hits"]

    fewer, plain = (sum(run_threads(RANKS, lambda comm, s=s: misses(comm, **s), TIMEOUT)) for s in (biased, settings))
    assert fewer < 0.97 * plain  # rows are hardly longer than fanouts

    def whole(comm):
        trainer = trainer_of(comm, [seen := Seen(save_at="every step")], **biased)
        return trainer.fit().history, seen

    def rest(comm, state, **changes):
        trainer = trainer_of(comm, [seen := Seen()], **{**biased, **changes})
        trainer.load_state_dict(copy.deepcopy(state))
        return trainer.fit().history, seen.losses

    history, seen = run_threads(RANKS, whole, TIMEOUT)[0]
    for step in (1, len(seen.states) - 1):
        for again, losses in run_threads(RANKS, lambda comm, step=step: rest(comm, seen.states[step - 1]), TIMEOUT):
            assert again == history
            assert losses == seen.losses[step:]
    for other in ({"cache_budget": "2KiB"}, {"biased": 4.0}):
        with pytest.raises(SpSampleError, match=r"Biased|biased"):
            run_threads(RANKS, lambda comm, other=other: rest(comm, seen.states[0], **other), TIMEOUT)


def test_a_preference_of_ranks_on_parts_of_their_own():
    def body(comm, factor):
        part = part_dataset(DATA, PARTS, RANKS, comm.rank, hops=2)
        settings = {"cache_budget": "512B", "cache_score": "out-degree", "biased": factor}
        losses, result, setup, features = run(comm, part=part, **settings)
        members = setup.sampler.members(part.dataset.graph.num_nodes)
        assert np.flatnonzero(members).tolist() == features.cached_vertices.tolist()
        return losses, result.cache["misses"]

    plain, biased = (run_threads(RANKS, lambda comm, f=f: body(comm, f), TIMEOUT) for f in (1.0, 16.0))
    assert biased[0][0] != plain[0][0]
    assert sum(misses for _, misses in biased) < sum(misses for _, misses in plain)


KEPT = {"cache_budget": "1KiB"}
COPIES = {"copies": "best-copies", "alpha": 0.3, **KEPT}


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"copies": "best"}, "^copies: got 'best'"),
        ({"copies": "best-copies", **KEPT}, "^alpha: got none with copies"),
        ({"copies": "best-copies", "alpha": 0.3}, "^cache_budget: got None with copies"),
        ({**COPIES, "cache_budget": "auto"}, "^cache_budget: got auto with copies"),
        ({**COPIES, "cache_replacement": "lookahead"}, "^cache_replacement: got 'lookahead'"),
        ({**COPIES, "pipeline": "cooperative"}, "^pipeline: got 'cooperative' with copies"),
        ({**COPIES, "pipeline": "factored"}, "^pipeline: got 'factored' with copies"),
        ({**COPIES, "backend": "cuda"}, "^backend: got 'cuda' with copies"),
        ({**COPIES, "alpha": 0.0}, "^alpha: got 0"),
        ({"alpha": 0.3, **KEPT}, "^alpha: got 0.3 without copies"),
        ({"biased": 2.0}, "^cache_budget: got None with biased"),
        ({"biased": 0.0, **KEPT}, "^biased: got 0"),
        ({"importance_weights": True, **KEPT}, "^importance_weights: got True without biased"),
        ({"biased": 2.0, "pipeline": "factored", **KEPT}, "^pipeline: got 'factored' with biased"),
    ],
)
def test_settings_that_cannot_be(settings, match):
    with pytest.raises(InputError, match=match):
        TrainConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ({**COPIES, "alpha": "no/such/file"}, DataError, "^alpha: got 'no/such/file'"),
        ({**COPIES, "cache_budget": 3}, InputError, "^budget: got 3 B"),
        ({**COPIES, "cache_score": "best"}, InputError, "^score: got 'best'"),
        ({"biased": 4.0, **KEPT, "sampler": sp.LADIES([8, 8])}, InputError, "^biased: got 4 with LADIES"),
        ({"biased": 4.0, **COPIES, "kind": "partitioned"}, InputError, "^cached: got sets .* that differ by rank"),
        ({"biased": 4.0, **KEPT, "importance_weights": True, "kind": "partitioned"}, InputError, "^importance_weights"),
    ],
)
def test_all_ranks_refuse(settings, error, match):
    def body(comm):
        with pytest.raises(error, match=match):
            run(comm, **settings)
        return True

    assert run_threads(RANKS, body, TIMEOUT) == [True] * RANKS


@pytest.mark.parametrize("text", ["0 1\n1 0\n", "words\n", "0 1 1 1\n1 0\n", ""])
def test_files_that_are_no_links_of_these_ranks(tmp_path, text):
    (tmp_path / "links.txt").write_text(text)

    def body(comm):
        with pytest.raises(SpSampleError, match=r"^alpha: got"):
            trainer_of(comm, **{**COPIES, "alpha": str(tmp_path / "links.txt")})
        return True

    assert run_threads(RANKS, body, TIMEOUT) == [True] * RANKS
