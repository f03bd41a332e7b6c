"""A trace as files that other tools read. The way back is `kineto`, for what profilers write.

In: a `Trace` of any source. Out: files. Each says where its times come from.

    perfetto   one JSON file for Perfetto and chrome://tracing     (tracks: spans onto lanes where they nest)
    profiler   a folder with a PyTorch profiler file for each rank (kernels: a rank's time as kernels)
    table      one CSV file
    target     where a file may be written, and never half of it
"""

from labkit.formats.perfetto import write_perfetto
from labkit.formats.profiler import write_profiler_folder
from labkit.formats.table import write_csv
from labkit.formats.target import check_file, check_folder, whole_file

__all__ = ["check_file", "check_folder", "whole_file", "write_csv", "write_perfetto", "write_profiler_folder"]
