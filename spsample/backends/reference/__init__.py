"""The executable specification: every kernel in plain NumPy, short rather than fast (`docs/law.md`)."""

from __future__ import annotations

from spsample.backends.arithmetic import default_float_environment
from spsample.backends.on_host import OnHost
from spsample.backends.reference import (
    algebra,
    columns,
    extraction,
    forms,
    interleaving,
    probability,
    random,
    routing,
    rows,
    totals,
    weights,
)


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
    row_exponents = staticmethod(default_float_environment()(probability.row_exponents))
    column_totals = staticmethod(default_float_environment()(probability.column_totals))
    merge_columns = staticmethod(default_float_environment()(probability.merge_columns))
    batch_totals = staticmethod(totals.batch_totals)
    row_numerators = staticmethod(totals.row_numerators)
    sample_rows_uniform = staticmethod(rows.sample_rows_uniform)
    sample_rows_weighted = staticmethod(default_float_environment()(rows.sample_rows_weighted))
    take_rows = staticmethod(rows.take_rows)
    take_rows_numbered = staticmethod(extraction.take_rows_numbered)
    row_totals = staticmethod(columns.row_totals)
    locate = staticmethod(columns.locate)
    draw_entries = staticmethod(columns.draw_entries)
    draw_columns = staticmethod(columns.draw_columns)
    draw_merged = staticmethod(default_float_environment()(columns.draw_merged))
    shared_guide = staticmethod(columns.shared_guide)
    draw_shared = staticmethod(columns.draw_shared)
    compact = staticmethod(extraction.compact)
    compact_owned = staticmethod(extraction.compact_owned)
    merge_targets = staticmethod(extraction.merge_targets)
    extract = staticmethod(extraction.extract)
    extracted_numerators = staticmethod(default_float_environment()(probability.extracted_numerators))
    des_raj_weights = staticmethod(default_float_environment()(weights.des_raj_weights))
    replacement_weights = staticmethod(default_float_environment()(weights.replacement_weights))
    reference_weights = staticmethod(default_float_environment()(weights.reference_weights))
    entry_values = staticmethod(default_float_environment()(extraction.entry_values))
    edge_index = staticmethod(forms.edge_index)
    widened = staticmethod(forms.widened)
    interleave = staticmethod(interleaving.interleave)
    appended = staticmethod(interleaving.appended)
    interleave_pointers = staticmethod(interleaving.interleave_pointers)
    route_rows = staticmethod(routing.route_rows)
    gather_rows = staticmethod(routing.gather_rows)
    spgemm = staticmethod(default_float_environment()(algebra.spgemm))
    select_rows = staticmethod(algebra.select_rows)


__all__ = ["ReferenceBackend"]
