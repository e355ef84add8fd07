"""The compiled parser of CSV blocks, for tests of several folders."""

from kopitiam.intake.clean_blocks import Kernel, kernel_path, load_kernel, write_kernel


def compiled_parser() -> Kernel:
    """Return the compiled parser; compile it first if `kopi warm` has not run since its source changed."""
    if not kernel_path().exists():
        write_kernel()
        load_kernel.cache_clear()
    kernel = load_kernel()
    assert kernel is not None
    return kernel
