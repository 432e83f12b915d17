//! A kill between every two commits of a turn.
