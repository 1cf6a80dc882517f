//! The files of one replica: segments, indexes, checkpoints, recovery.
