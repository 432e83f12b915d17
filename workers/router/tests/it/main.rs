//! The router against servers that speak recorded dialects, and on a real mesh.
