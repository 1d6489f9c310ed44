"""The one way to machine code: generated source, kernels kept on disk, function pointers."""
