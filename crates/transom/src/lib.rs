//! transom
