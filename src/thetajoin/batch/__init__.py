"""Arrow batches: columns to ordered keys, rows by position, tables of other libraries."""
