//! ibverbs
