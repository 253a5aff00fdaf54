"""The paper's experiments: settings in small files, stages that resume, records that a report reads."""
