"""The executable specification: every kernel in plain NumPy, short rather than fast (`docs/law.md`)."""

from __future__ import annotations

from spsample.backends.arithmetic import (
    coordinates_by_parts,
    default_float_environment,
    extract_unbiased_by_parts,
    unbiased_values_by_parts,
)
from spsample.backends.hops import hop_by_hop
from spsample.backends.on_host import OnHost
from spsample.backends.reference import (
    column_law,
    compaction,
    entry_law,
    extraction,
    quantisation,
    random,
    routing,
    row_law,
    spgemm,
    stacking,
    values,
)

_as_ieee = default_float_environment()


class ReferenceBackend(OnHost):
    """Backend `reference`: what the other backends must equal bit for bit.

    Examples
    --------
    >>> ReferenceBackend().shuffle(4, (1, 2)).tolist()
    [3, 2, 0, 1]
    """

    name = "reference"
    philox = staticmethod(random.philox)
    shuffle = staticmethod(random.shuffle)
    row_exponents = staticmethod(_as_ieee(quantisation.row_exponents))
    batch_statistics = staticmethod(quantisation.batch_statistics)
    row_numerators = staticmethod(quantisation.row_numerators)
    sample_rows_uniform = staticmethod(row_law.sample_rows_uniform)
    sample_rows_weighted = staticmethod(_as_ieee(row_law.sample_rows_weighted))
    sample_rows_scaled = staticmethod(_as_ieee(row_law.sample_rows_scaled))
    entry_ranks = staticmethod(row_law.entry_ranks)
    take_rows = staticmethod(row_law.take_rows)
    take_rows_numbered = staticmethod(row_law.take_rows_numbered)
    sample_hops = hop_by_hop
    entry_counts = staticmethod(entry_law.entry_counts)
    locate = staticmethod(entry_law.locate)
    draw_entries = staticmethod(entry_law.draw_entries)
    column_totals = staticmethod(_as_ieee(column_law.column_totals))
    merge_columns = staticmethod(_as_ieee(column_law.merge_columns))
    add_columns = staticmethod(column_law.add_columns)
    draw_columns = staticmethod(column_law.draw_columns)
    draw_merged = staticmethod(_as_ieee(column_law.draw_merged))
    shared_guide = staticmethod(column_law.shared_guide)
    draw_shared = staticmethod(column_law.draw_shared)
    shared_numerators = staticmethod(column_law.shared_numerators)
    compact = staticmethod(compaction.compact)
    extract = staticmethod(extraction.extract)
    extract_unbiased = extract_unbiased_by_parts
    extracted_numerators = staticmethod(_as_ieee(values.extracted_numerators))
    own_weights = staticmethod(values.own_weights)
    expansion_values = staticmethod(values.expansion_values)
    des_raj_weights = staticmethod(_as_ieee(values.des_raj_weights))
    replacement_weights = staticmethod(_as_ieee(values.replacement_weights))
    reference_weights = staticmethod(_as_ieee(values.reference_weights))
    entry_values = staticmethod(_as_ieee(values.entry_values))
    unbiased_values = unbiased_values_by_parts
    interleave = staticmethod(stacking.interleave)
    appended = staticmethod(stacking.appended)
    interleave_pointers = staticmethod(stacking.interleave_pointers)
    edge_index = staticmethod(stacking.edge_index)
    widened = staticmethod(stacking.widened)
    coordinates = coordinates_by_parts
    route_rows = staticmethod(routing.route_rows)
    gather_rows = staticmethod(routing.gather_rows)
    select_rows = staticmethod(spgemm.select_rows)
    spgemm = staticmethod(_as_ieee(spgemm.spgemm))


__all__ = ["ReferenceBackend"]
