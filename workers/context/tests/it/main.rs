//! Tests of the worker against a real server.
