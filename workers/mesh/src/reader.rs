//! Reading a stream in order, from a place, for as long as wanted: an ephemeral consumer that is made anew whenever it is lost.
//!
//! A reader sees each message at most once and in the order of the stream, also across restarts of the broker.
//!
//! A message whose stored bytes are damaged is never handed out, and the broker counts it as one that is still to come: the count
//! that comes with the deliveries never falls to nothing. It also stops at some such messages until it is asked anew. So a reader
//! that is not at the end yet asks how its consumer stands whenever nothing comes.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use teamster_protocol::limits;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    pause::Pauses,
    pull::{Pull, Pulled},
    wire::{Failure, StoredMessage, Wire},
};

/// Deliveries asked for at once, and messages that wait to be taken.
const BATCH: usize = 256;
/// How long the broker keeps a consumer that nobody pulls from.
const KEPT: Duration = Duration::from_secs(30);
/// Pause before a lost consumer is made anew.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// How long nothing may come while something is still to come, before it is asked whether it does.
const QUIET: Duration = Duration::from_millis(500);
/// The longest pause before a consumer is made anew.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Where a reader begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// At the first message that is kept.
    All,
    /// At this sequence.
    At(u64),
    /// At the last message of each subject.
    LastOfEach,
    /// At what comes next.
    New,
}

/// What is read.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    /// The stream.
    pub(crate) stream: String,
    /// The subjects; empty means all.
    pub(crate) filters: Vec<String>,
    /// Where to begin.
    pub(crate) start: Start,
    /// After a loss: `true` begins at `start` again, `false` goes on behind the last message read.
    pub(crate) is_restarting: bool,
    /// Whether bodies are left out.
    pub(crate) is_headers_only: bool,
}

/// What a reader tells.
pub(crate) enum Read {
    /// A message.
    Message(StoredMessage),
    /// Everything that was there when the reader began is read.
    CaughtUp,
    /// The reader began anew at its start: what was read before may be outdated.
    Restarted,
    /// A consumer was made that was to begin at a sequence. It begins elsewhere where the stream does not hold that: behind it,
    /// because older messages are gone, or before it, because the stream ends there.
    Began {
        /// The sequence that was wanted.
        wanted: u64,
        /// The sequence at which the consumer begins.
        begun: u64,
    },
    /// The consumer cannot be made now; the reader tries again.
    Failed(Failure),
}

/// A running reader; dropping it ends it.
pub(crate) struct Reader {
    task: JoinHandle<()>,
    opened: Option<oneshot::Receiver<Result<(), Failure>>>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reader {
    /// Begins to read; what is read goes to `sink` with `tag`.
    pub(crate) fn spawn<Tag: Copy + Send + 'static>(
        wire: &Wire,
        spec: Spec,
        tag: Tag,
        sink: Sink<Tag>,
    ) -> Self {
        let (told, opened) = oneshot::channel();
        let run = run(wire.clone(), spec, tag, sink, told);
        Self {
            task: teamster_telemetry::task::spawn("stream reader", run),
            opened: Some(opened),
        }
    }

    /// Waits until the first consumer is there, so that nothing that comes from then on is missed, or could not be made.
    pub(crate) async fn opened(&mut self) -> Result<(), Failure> {
        let Some(opened) = self.opened.take() else {
            return Ok(());
        };
        match timeout(2 * limits::BROKER_REQUEST, opened).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) | Err(_) => Err(Failure::Unknown("the reader did not begin".to_owned())),
        }
    }
}

/// Where readers write.
pub(crate) type Sink<Tag> = mpsc::Sender<(Tag, Read)>;
/// Where what was read is taken from.
pub(crate) type Reads<Tag> = mpsc::Receiver<(Tag, Read)>;

/// A channel of fitting size.
pub(crate) fn channel<Tag>() -> (Sink<Tag>, Reads<Tag>) {
    mpsc::channel(BATCH)
}

/// What the broker says about a consumer.
#[derive(Deserialize)]
struct Info {
    #[serde(default)]
    num_pending: u64,
    delivered: Delivered,
}

#[derive(Deserialize)]
struct Delivered {
    consumer_seq: u64,
    stream_seq: u64,
}

/// How far a reader is.
struct Place {
    start: Start,
    /// The last stream sequence read.
    last: u64,
    is_caught_up: bool,
}

async fn run<Tag: Copy + Send>(
    wire: Wire,
    spec: Spec,
    tag: Tag,
    sink: Sink<Tag>,
    told: oneshot::Sender<Result<(), Failure>>,
) {
    let mut told = Some(told);
    let mut place = Place {
        start: spec.start,
        last: 0,
        is_caught_up: false,
    };
    let mut pauses = Pauses::new(PAUSE_MIN, PAUSE_MAX);
    let mut is_first = true;
    loop {
        if spec.is_restarting && !is_first {
            place = Place {
                start: spec.start,
                last: 0,
                is_caught_up: false,
            };
            if sink.send((tag, Read::Restarted)).await.is_err() {
                return;
            }
        }
        is_first = false;
        let name = uuid::Uuid::now_v7().simple().to_string();
        match create(&wire, &spec, &name, place.start).await {
            Ok(created) => {
                pauses.reset();
                if let Some(told) = told.take() {
                    let _ = told.send(Ok(()));
                }
                // The broker begins right behind a stream's end when it ends before the wanted sequence: a stream in memory
                // begins at 1 after a restart, and a reader must not wait for its old place.
                if matches!(place.start, Start::New | Start::At(_)) {
                    place.last = created.delivered.stream_seq;
                }
                if let Start::At(wanted) = place.start {
                    let (wanted, begun) = (wanted.max(1), place.last.saturating_add(1));
                    if sink
                        .send((tag, Read::Began { wanted, begun }))
                        .await
                        .is_err()
                    {
                        return;
                    }
                }
                if created.num_pending == 0 && !place.is_caught_up {
                    place.is_caught_up = true;
                    if sink.send((tag, Read::CaughtUp)).await.is_err() {
                        return;
                    }
                }
                let ended = pump(&wire, &spec.stream, &name, &mut place, tag, &sink).await;
                let _ = wire
                    .tell(
                        format!("$JS.API.CONSUMER.DELETE.{}.{name}", spec.stream),
                        None,
                        Bytes::new(),
                    )
                    .await;
                if ended {
                    return;
                }
                place.start = next_start(&place);
            }
            Err(failure) => match told.take() {
                Some(told) => {
                    let _ = told.send(Err(failure));
                }
                None => {
                    if sink.send((tag, Read::Failed(failure))).await.is_err() {
                        return;
                    }
                }
            },
        }
        sleep(pauses.next()).await;
        wire.up(PAUSE_MAX).await;
    }
}

/// Where to go on after a loss. A reader of the last message of each subject has the older subjects still to come when it is
/// lost in the middle, so it begins again and leaves out what it knows by sequence.
fn next_start(place: &Place) -> Start {
    match place.start {
        Start::LastOfEach if !place.is_caught_up => Start::LastOfEach,
        Start::All if place.last == 0 => Start::All,
        _ => Start::At(place.last + 1),
    }
}

async fn create(wire: &Wire, spec: &Spec, name: &str, start: Start) -> Result<Info, Failure> {
    let (policy, from) = match start {
        Start::All => ("all", None),
        Start::At(seq) => ("by_start_sequence", Some(seq)),
        Start::LastOfEach => ("last_per_subject", None),
        Start::New => ("new", None),
    };
    let mut config = serde_json::json!({
        "name": name,
        "deliver_policy": policy,
        "ack_policy": "none",
        "max_deliver": 1,
        "mem_storage": true,
        "num_replicas": 1,
        "inactive_threshold": u64::try_from(KEPT.as_nanos()).unwrap_or(u64::MAX),
    });
    if let Some(fields) = config.as_object_mut() {
        if let Some(seq) = from {
            fields.insert("opt_start_seq".to_owned(), seq.into());
        }
        if spec.is_headers_only {
            fields.insert("headers_only".to_owned(), true.into());
        }
        // The broker demands a filter for the policy `last_per_subject`.
        let all = [">".to_owned()];
        let filters = if spec.filters.is_empty() {
            all.as_slice()
        } else {
            spec.filters.as_slice()
        };
        match filters {
            [one] => fields.insert("filter_subject".to_owned(), one.as_str().into()),
            many => fields.insert("filter_subjects".to_owned(), many.into()),
        };
    }
    let body =
        serde_json::json!({"stream_name": spec.stream, "config": config, "action": "create"});
    wire.api(&format!("CONSUMER.CREATE.{}.{name}", spec.stream), &body)
        .await
}

/// Hands on what one consumer brings, until it is lost (`false`) or nobody listens any more (`true`).
async fn pump<Tag: Copy + Send>(
    wire: &Wire,
    stream: &str,
    consumer: &str,
    place: &mut Place,
    tag: Tag,
    sink: &Sink<Tag>,
) -> bool {
    let mut pull = Pull::new(wire, stream, consumer);
    let mut deliveries = 0;
    loop {
        pull.ask(BATCH).await;
        let is_caught_up = place.is_caught_up;
        let quiet = async {
            if is_caught_up {
                std::future::pending::<()>().await;
            }
            sleep(QUIET).await;
        };
        let delivery = tokio::select! {
            biased;
            pulled = pull.next() => match pulled {
                Pulled::Delivery(delivery) => delivery,
                Pulled::Expired => continue,
                Pulled::Broken(why) => {
                    tracing::debug!(stream, reason = why, "a reader's consumer is made anew");
                    return false;
                }
            },
            () = sink.closed() => return true,
            () = quiet => {
                match standing(wire, stream, consumer, deliveries).await {
                    // What was still to come may be gone: removed for its age, or with its session. Or it cannot be read.
                    Standing::AtEnd => {
                        place.is_caught_up = true;
                        if sink.send((tag, Read::CaughtUp)).await.is_err() {
                            return true;
                        }
                    }
                    Standing::Stopped => pull.ask_again(),
                    Standing::Unknown => {}
                }
                continue;
            }
        };
        let (seq, count, pending) = match delivery.info() {
            Ok(info) => (info.stream_sequence, info.consumer_sequence, info.pending),
            Err(error) => {
                tracing::warn!(stream, %error, "a delivery does not say what it is");
                return false;
            }
        };
        deliveries += 1;
        if count != deliveries {
            tracing::debug!(stream, count, deliveries, "a reader missed deliveries");
            return false;
        }
        // Every start delivers in the order of the stream, the last message of each subject included.
        if seq > place.last {
            place.last = seq;
            let message = StoredMessage {
                subject: delivery.message.subject.to_string(),
                seq,
                headers: delivery.message.headers.unwrap_or_default(),
                body: delivery.message.payload,
            };
            if sink.send((tag, Read::Message(message))).await.is_err() {
                return true;
            }
        }
        if pending == 0 && !place.is_caught_up {
            place.is_caught_up = true;
            if sink.send((tag, Read::CaughtUp)).await.is_err() {
                return true;
            }
        }
    }
}

/// How a consumer stands that has brought nothing for a while.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    /// It has handed out everything that it can.
    AtEnd,
    /// It has more, and does not go on.
    Stopped,
    /// It cannot be told: something is on its way, or nobody answered.
    Unknown,
}

/// Asks how a consumer stands of which `deliveries` have come.
async fn standing(wire: &Wire, stream: &str, consumer: &str, deliveries: u64) -> Standing {
    let subject = format!("CONSUMER.INFO.{stream}.{consumer}");
    let info = wire.api::<Info>(&subject, &serde_json::json!(null)).await;
    match info {
        Ok(info) => judge(info.num_pending, info.delivered.consumer_seq, deliveries),
        Err(failure) => {
            tracing::debug!(stream, error = %failure, "how a consumer stands is not known");
            Standing::Unknown
        }
    }
}

fn judge(pending: u64, handed: u64, deliveries: u64) -> Standing {
    match pending {
        _ if handed != deliveries => Standing::Unknown,
        0 => Standing::AtEnd,
        _ => Standing::Stopped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_is_at_its_end_only_when_all_it_handed_out_has_come() {
        assert_eq!(judge(0, 3, 3), Standing::AtEnd);
        assert_eq!(judge(0, 4, 3), Standing::Unknown);
        assert_eq!(judge(2, 3, 3), Standing::Stopped);
        assert_eq!(judge(2, 4, 3), Standing::Unknown);
    }

    #[test]
    fn a_reader_goes_on_where_it_was() {
        let at = |start, last, is_caught_up| {
            next_start(&Place {
                start,
                last,
                is_caught_up,
            })
        };
        assert_eq!(at(Start::All, 0, false), Start::All);
        assert_eq!(at(Start::All, 9, false), Start::At(10));
        assert_eq!(at(Start::At(3), 2, false), Start::At(3));
        assert_eq!(at(Start::LastOfEach, 9, false), Start::LastOfEach);
        assert_eq!(at(Start::LastOfEach, 9, true), Start::At(10));
        assert_eq!(at(Start::New, 4, true), Start::At(5));
    }
}
