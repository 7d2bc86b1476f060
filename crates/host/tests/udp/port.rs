//! One process's port.
