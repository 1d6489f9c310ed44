"""Work on disk: one writer, whole files, a header with the question; results saved and loaded."""
