//! The router against servers that speak recorded dialects byte by byte, and on a real mesh.

mod dialect;
mod mesh;
mod retry;
mod stream;
mod support;
mod tool;
