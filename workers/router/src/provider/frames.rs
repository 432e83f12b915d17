//! When what a stream said becomes visible: at once, but not more often than a reader can see.
//!
//! Owns: the pause between two frames of one stream. A frame costs a message on the mesh, and a fast model says more words a
//! second than anybody reads. The first word never waits; neither does one that comes slower than the pause.
//!
//! Never: what was said; the completion has all of it, whatever was shown.

use std::time::Duration;

use teamster_protocol::function::router::DeltaKind;
use tokio::time::Instant;

use super::{Sink, send_merged};

/// The pause between two frames.
const EVERY: Duration = Duration::from_millis(5);

/// The frames of one stream.
pub(super) struct Frames<'a, S> {
    sink: &'a mut S,
    waiting: Vec<DeltaKind>,
    due: Instant,
}

impl<'a, S: Sink> Frames<'a, S> {
    /// The frames that go to `sink`.
    pub(super) fn new(sink: &'a mut S) -> Self {
        Self {
            sink,
            waiting: Vec::new(),
            due: Instant::now(),
        }
    }

    /// Shows what is new, now or with what follows.
    pub(super) async fn add(&mut self, deltas: Vec<DeltaKind>) {
        self.waiting.extend(deltas);
        if Instant::now() >= self.due {
            self.show().await;
        }
    }

    /// When something waits that is to be shown by then.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.due)
    }

    /// Shows what waits.
    pub(super) async fn show(&mut self) {
        if !self.waiting.is_empty() {
            send_merged(std::mem::take(&mut self.waiting), self.sink).await;
            self.due = Instant::now() + EVERY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> DeltaKind {
        DeltaKind::Text {
            text: text.to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_word_is_shown_at_once_and_a_flood_in_few_frames() {
        let mut shown = Vec::new();
        let mut frames = Frames::new(&mut shown);
        frames.add(vec![text("a")]).await;
        assert_eq!(frames.due(), None);
        for word in ["b", "c", "d"] {
            frames.add(vec![text(word)]).await;
        }
        let due = frames.due().expect("something waits");
        tokio::time::sleep_until(due).await;
        frames.show().await;
        frames.show().await;
        tokio::time::advance(EVERY).await;
        frames.add(vec![text("e")]).await;
        assert_eq!(frames.due(), None);
        assert_eq!(shown, [text("a"), text("bcd"), text("e")]);
    }
}
