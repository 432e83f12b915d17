//! The wire as outsiders see it: the page that describes it, the examples, and peers that we did not write.

mod aimock;
mod example;
mod granted;
mod page;
mod plain;
mod python;
mod reference;
