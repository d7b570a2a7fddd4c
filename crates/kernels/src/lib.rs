//! Vector kernels and the thread pool: slices in, slices out, the best path of the machine.
