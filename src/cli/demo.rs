//! stub
use super::{Global, exit::Exit, failure::Failure, output::Output};
use clap::Args;
/// stub
#[derive(Debug, Args)]
pub(super) struct Options {}
pub(super) async fn run(_g: &Global, _o: &Output, _p: Options) -> Result<Exit, Failure> {
    todo!()
}
