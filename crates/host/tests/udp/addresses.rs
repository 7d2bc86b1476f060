//! The GID table.
