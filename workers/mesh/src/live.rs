//! Deltas of what is being generated. At most once; a reader sees gaps by the frames' numbers.
//!
//! A frame has one way to those who watch: the subject itself. The stream LIVE keeps a copy for who comes late or missed some, and is read
//! for that alone: at the beginning, and where numbers are missing.

mod order;

use teamster_protocol::{SessionId, function::router::Delta, subject};

use crate::{
    Error,
    connection::{Mesh, Subscription},
    reader::{Read, Reader, Reads, Spec, Start, channel},
    topology::LIVE,
};

use self::order::{Order, Place};

/// The stream LIVE, through one worker's connection.
#[derive(Clone)]
pub struct Live {
    mesh: Mesh,
}

/// A reader of one session's deltas.
pub struct Deltas {
    mesh: Mesh,
    session: SessionId,
    fresh: Subscription,
    /// What is kept, until all of it is read.
    kept: Option<Kept>,
    /// The frame before which some were missing; it comes behind what is kept.
    next: Option<Delta>,
    order: Order,
}

/// A reader of what the stream keeps.
struct Kept {
    reads: Reads<()>,
    _reader: Reader,
}

impl Deltas {
    /// The next frame; `None` once the connection is closed for good. A frame that cannot be read is left out. Cancel-safe.
    pub async fn next(&mut self) -> Option<Delta> {
        loop {
            if let Some(kept) = &mut self.kept {
                match kept.next().await {
                    Some(delta) => {
                        if self.order.place(&delta) != Place::Known {
                            self.order.note(&delta);
                            return Some(delta);
                        }
                    }
                    None => self.kept = None,
                }
                continue;
            }
            if let Some(delta) = self.next.take()
                && self.order.place(&delta) != Place::Known
            {
                self.order.note(&delta);
                return Some(delta);
            }
            let plain = self.fresh.next().await?;
            let Some(delta) = parse(&plain.subject, &plain.body) else {
                continue;
            };
            match self.order.place(&delta) {
                Place::Known => {}
                Place::Next => {
                    self.order.note(&delta);
                    return Some(delta);
                }
                Place::Gap => {
                    self.next = Some(delta);
                    self.kept = Some(Kept::open(&self.mesh, &self.session));
                }
            }
        }
    }
}

impl Kept {
    fn open(mesh: &Mesh, session: &SessionId) -> Self {
        let (sink, reads) = channel();
        let spec = Spec {
            stream: LIVE.to_owned(),
            filters: vec![subject::live(session)],
            start: Start::All,
            is_restarting: false,
            is_headers_only: false,
        };
        Self {
            reads,
            _reader: Reader::spawn(mesh.wire(), spec, (), sink),
        }
    }

    /// The next frame that is kept; `None` when that was all, or when the stream cannot be read: it may be lost with the memory of its
    /// server, and the log tells everything.
    async fn next(&mut self) -> Option<Delta> {
        loop {
            match self.reads.recv().await?.1 {
                Read::Message(message) => {
                    if let Some(delta) = parse(&message.subject, &message.body) {
                        return Some(delta);
                    }
                }
                Read::Failed(failure) => {
                    tracing::warn!(error = %failure, "earlier frames cannot be read now");
                    return None;
                }
                Read::CaughtUp => return None,
                Read::Restarted | Read::Began { .. } => {}
            }
        }
    }
}

fn parse(subject: &str, body: &[u8]) -> Option<Delta> {
    serde_json::from_slice(body)
        .inspect_err(|error| tracing::debug!(subject, %error, "a frame cannot be read"))
        .ok()
}

impl Live {
    pub(crate) fn new(mesh: Mesh) -> Self {
        Self { mesh }
    }

    /// Publishes a frame; does not wait.
    pub async fn publish(&self, session: &SessionId, delta: &Delta) -> Result<(), Error> {
        let body = serde_json::to_vec(delta).map_err(|error| Error::Malformed {
            what: "a frame".to_owned(),
            source: Box::new(error),
        })?;
        self.mesh
            .wire()
            .tell(subject::live(session), None, body.into())
            .await
            .map_err(|failure| failure.during(format!("publishing a frame of {session}")))
    }

    /// Reads a session's frames: first those that are kept, then new ones.
    pub async fn follow(&self, session: &SessionId) -> Result<Deltas, Error> {
        // What comes while the kept ones are read is held by the subscription, which the server knows before it is asked for those.
        let fresh = self.mesh.subscribe(subject::live(session)).await?;
        Ok(Deltas {
            mesh: self.mesh.clone(),
            session: session.clone(),
            fresh,
            kept: Some(Kept::open(&self.mesh, session)),
            next: None,
            order: Order::default(),
        })
    }
}
