//! Every way in which deltas and commits can meet.

use proptest::prelude::*;
use teamster_protocol::{
    SessionId,
    function::router::{Delta, DeltaKind},
    id::RequestId,
};

use super::{Piece, Stream};

fn request(attempt: u32) -> RequestId {
    RequestId::of(&SessionId::parse("s").expect("valid"), 1, attempt)
}

fn text(attempt: u32, index: u64, text: &str) -> Delta {
    Delta {
        request: request(attempt),
        index,
        delta: DeltaKind::Text {
            text: text.to_owned(),
        },
    }
}

/// What a terminal shows after the pieces: `again` begins anew.
fn shown(pieces: &[Piece]) -> String {
    pieces
        .iter()
        .fold(String::new(), |shown, piece| match piece {
            Piece::Text(more) => shown + more,
            Piece::Again => String::new(),
            Piece::End | Piece::Retry { .. } => shown,
        })
}

#[test]
fn a_gap_is_repaired_from_the_log() {
    let mut stream = Stream::default();
    let mut pieces = stream.started(&request(0));
    for delta in [text(0, 0, "one "), text(0, 2, "three")] {
        pieces.extend(stream.delta(&delta));
    }
    assert_eq!(shown(&pieces), "one ");
    pieces.extend(stream.said(&request(0), "one two three"));
    assert_eq!(shown(&pieces), "one two three");
}

#[test]
fn an_answer_that_begins_again_the_same_way_is_not_shown_twice() {
    let mut stream = Stream::default();
    let mut pieces = stream.started(&request(0));
    pieces.extend(stream.delta(&text(0, 0, "one two ")));
    pieces.extend(stream.started(&request(1)));
    for delta in [text(1, 0, "one "), text(1, 1, "two "), text(1, 2, "three")] {
        pieces.extend(stream.delta(&delta));
    }
    pieces.extend(stream.said(&request(1), "one two three"));
    assert!(!pieces.contains(&Piece::Again));
    assert_eq!(shown(&pieces), "one two three");
}

#[test]
fn a_later_try_may_run_before_the_log_says_so() {
    let mut stream = Stream::default();
    let mut pieces = stream.started(&request(0));
    pieces.extend(stream.delta(&text(0, 0, "one ")));
    pieces.extend(stream.delta(&text(1, 0, "one two")));
    assert_eq!(shown(&pieces), "one two");
    assert_eq!(stream.delta(&text(0, 1, "from before")), None);
}

#[test]
fn an_answer_that_begins_again_differently_says_so() {
    let mut stream = Stream::default();
    let mut pieces = stream.started(&request(0));
    pieces.extend(stream.delta(&text(0, 0, "left")));
    pieces.extend(stream.started(&request(1)));
    pieces.extend(stream.delta(&text(1, 0, "right")));
    pieces.extend(stream.said(&request(1), "right"));
    assert_eq!(
        pieces
            .iter()
            .filter(|piece| **piece == Piece::Again)
            .count(),
        1
    );
    assert_eq!(shown(&pieces), "right");
}

#[test]
fn frames_that_outrun_the_log_are_kept_and_old_ones_are_not_shown() {
    let mut stream = Stream::default();
    let mut old = text(0, 0, "of an older turn");
    old.request = RequestId::of(&SessionId::parse("s").expect("valid"), 0, 0);
    assert_eq!(stream.delta(&old), None);
    assert_eq!(stream.delta(&text(0, 0, "early")), None);
    assert_eq!(
        stream.started(&request(0)),
        [Piece::Text("early".to_owned())]
    );
    stream.said(&request(0), "early");
    assert_eq!(stream.delta(&text(0, 1, "late")), None);
    assert_eq!(stream.started(&request(1)), []);
}

proptest! {
    /// Whatever is lost, repeated or late: what is shown in the end is what was committed.
    #[test]
    fn what_is_shown_is_what_was_committed(
        frames in proptest::collection::vec((0_u32..2, 0_u64..6, "[ab]{0,2}"), 0..24),
        committed in "[ab]{0,8}",
    ) {
        let mut stream = Stream::default();
        let mut pieces = stream.started(&request(0));
        for (attempt, index, frame) in frames {
            pieces.extend(stream.delta(&text(attempt, index, &frame)));
        }
        pieces.extend(stream.started(&request(1)));
        pieces.extend(stream.said(&request(1), &committed));
        prop_assert_eq!(shown(&pieces), committed);
    }
}
