"""From journal rows to tables: benchmarks, aggregation, intervals, published rows, layout."""
