//! Real clusters, real clients and benchmarks.
