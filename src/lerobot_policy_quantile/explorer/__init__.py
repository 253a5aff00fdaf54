"""The episodes of runs to look at: one page with video, predicted distributions and decoders; films; Rerun files."""
