"""The paper's experiments: settings in small files, stages that resume, records for reports."""
