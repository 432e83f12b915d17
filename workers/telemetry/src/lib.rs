//! Logs and traces of every Teamster process, set up once.
