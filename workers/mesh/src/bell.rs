//! Doorbells: un-acked deliveries of TURNS and CONTROL, which are also the leases.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_nats::jetstream;
use bytes::Bytes;
use teamster_protocol::{Lane, SessionId, subject::Doorbell};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinHandle,
    time::sleep,
};

use crate::{
    Error,
    connection::Mesh,
    pause::Pauses,
    pull::{Pull, Pulled},
    topology::{BELL, CONTROL, TURNS, ensure_bell},
};

/// Credit that is kept for control inputs, as a divisor of the whole: they must arrive while messages queue up.
const CONTROL_SHARE: usize = 8;
/// The most that is kept for them.
const CONTROL_CREDIT_MAX: usize = 64;
/// Pause before a lost consumer is looked for.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest pause before a lost consumer is looked for again.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// One delivery. It is a hint; the truth is the lane and the log.
pub struct Ring {
    /// The session.
    pub session: SessionId,
    /// The stream.
    pub lane: Lane,
    /// The stream sequence.
    pub seq: u64,
    /// Whether it is a kick.
    pub is_kick: bool,
    /// How often it was delivered, from 1.
    pub delivered: u64,
    /// Where acknowledgements go.
    reply: String,
    mesh: Mesh,
}

impl Ring {
    /// Says that it is dealt with; does not wait.
    pub async fn ack(&self) {
        self.say("+ACK".to_owned()).await;
    }

    /// Renews it as a lease; does not wait.
    pub async fn progress(&self) {
        self.say("+WPI".to_owned()).await;
    }

    /// Gives it back, to be delivered again after `delay`; does not wait.
    pub async fn nak(&self, delay: Duration) {
        self.say(nak(delay)).await;
    }

    async fn say(&self, words: String) {
        let wire = self.mesh.wire();
        if let Err(failure) = wire.tell(self.reply.clone(), None, words.into()).await {
            tracing::debug!(session = %self.session, seq = self.seq, error = %failure, "a doorbell could not be answered; it rings again");
        }
    }
}

fn nak(delay: Duration) -> String {
    if delay.is_zero() {
        "-NAK".to_owned()
    } else {
        format!("-NAK {{\"delay\":{}}}", delay.as_nanos())
    }
}

/// The credit of both pulls: what may be outstanding, and what is.
struct Credit {
    total: usize,
    taken: AtomicUsize,
    released: Notify,
}

/// The shared consumers of both streams, pulled with exact credit.
pub struct Bells {
    rings: mpsc::Receiver<Ring>,
    credit: Arc<Credit>,
    task: JoinHandle<()>,
}

impl Drop for Bells {
    fn drop(&mut self) {
        self.task.abort();
        // What nobody took rings elsewhere at once, not after the lease.
        self.rings.close();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        while let Ok(ring) = self.rings.try_recv() {
            runtime.spawn(async move { ring.nak(Duration::ZERO).await });
        }
    }
}

impl Bells {
    /// Begins to pull. `credit` bounds the deliveries that are outstanding at once; each [`Bells::next`] uses one up and
    /// [`Bells::release`] gives it back.
    pub async fn open(mesh: &Mesh, credit: usize) -> Result<Self, Error> {
        for stream in [TURNS, CONTROL] {
            ensure_bell(mesh.wire(), stream).await?;
        }
        let credit = Arc::new(Credit {
            total: credit.max(1),
            taken: AtomicUsize::new(0),
            released: Notify::new(),
        });
        let (sink, rings) = mpsc::channel(credit.total);
        let task = teamster_telemetry::task::spawn(
            "doorbells",
            run(mesh.clone(), Arc::clone(&credit), sink),
        );
        Ok(Self {
            rings,
            credit,
            task,
        })
    }

    /// The next doorbell of either stream. Survives restarts of the broker and the loss of its consumer. A delivery whose
    /// subject cannot be read is removed and reported in the log, never returned. Cancel-safe.
    pub async fn next(&mut self) -> Option<Ring> {
        self.rings.recv().await
    }

    /// Gives one credit back.
    pub fn release(&mut self) {
        self.releaser().release();
    }

    /// A handle that gives credit back from elsewhere.
    pub fn releaser(&self) -> Releaser {
        Releaser(Arc::clone(&self.credit))
    }
}

/// Gives credit back, from any task.
#[derive(Clone)]
pub struct Releaser(Arc<Credit>);

impl Releaser {
    /// Gives one credit back.
    pub fn release(&self) {
        let _ = self
            .0
            .taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
                taken.checked_sub(1)
            });
        self.0.released.notify_one();
    }
}

/// One stream's pull, and the task that makes its consumer anew while that may be gone.
struct Side {
    lane: Lane,
    pull: Pull,
    repair: Option<JoinHandle<bool>>,
    pauses: Pauses,
}

impl Drop for Side {
    fn drop(&mut self) {
        if let Some(repair) = &self.repair {
            repair.abort();
        }
    }
}

impl Side {
    fn new(mesh: &Mesh, lane: Lane) -> Self {
        Self {
            lane,
            pull: Pull::new(mesh.wire(), stream_of(lane), BELL),
            repair: None,
            pauses: Pauses::new(PAUSE_MIN, PAUSE_MAX),
        }
    }

    /// The next delivery. `None`: credit must be asked for again. Cancel-safe: a repair goes on by itself.
    async fn next(&mut self, mesh: &Mesh) -> Option<Box<jetstream::Message>> {
        if let Some(repair) = &mut self.repair {
            let is_whole = repair.await.unwrap_or(false);
            self.repair = (!is_whole).then(|| self.begin_repair(mesh));
            return None;
        }
        match self.pull.next().await {
            Pulled::Delivery(message) => {
                self.pauses.reset();
                Some(message)
            }
            Pulled::Expired => None,
            Pulled::Broken(why) => {
                tracing::debug!(
                    stream = stream_of(self.lane),
                    reason = why,
                    "doorbells are asked for anew"
                );
                self.repair = Some(self.begin_repair(mesh));
                None
            }
        }
    }

    fn begin_repair(&mut self, mesh: &Mesh) -> JoinHandle<bool> {
        let (stream, wire) = (stream_of(self.lane), mesh.wire().clone());
        let pause = self.pauses.next();
        teamster_telemetry::task::spawn("doorbell consumer", async move {
            sleep(pause).await;
            wire.up(PAUSE_MAX).await;
            match ensure_bell(&wire, stream).await {
                Ok(()) => true,
                Err(error) => {
                    let source = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(stream, %error, source, "no doorbells: their consumer cannot be ensured; trying again");
                    false
                }
            }
        })
    }
}

async fn run(mesh: Mesh, credit: Arc<Credit>, sink: mpsc::Sender<Ring>) {
    let mut messages = Side::new(&mesh, Lane::In);
    let mut control = Side::new(&mesh, Lane::Ctl);
    loop {
        let taken = credit.taken.load(Ordering::Acquire);
        let ask = shares(
            credit.total,
            taken,
            messages.pull.asked(),
            control.pull.asked(),
        );
        if control.repair.is_none() {
            control.pull.ask(ask.control).await;
        }
        if messages.repair.is_none() {
            messages.pull.ask(ask.messages).await;
        }
        let (lane, delivery) = tokio::select! {
            delivery = control.next(&mesh) => (Lane::Ctl, delivery),
            delivery = messages.next(&mesh) => (Lane::In, delivery),
            () = credit.released.notified() => continue,
        };
        let Some(delivery) = delivery else { continue };
        let Some(ring) = read(&mesh, lane, &delivery).await else {
            continue;
        };
        if credit.taken.load(Ordering::Acquire) >= credit.total {
            // With a credit of one both streams are asked for one.
            ring.nak(Duration::from_millis(50)).await;
            continue;
        }
        credit.taken.fetch_add(1, Ordering::AcqRel);
        if sink.send(ring).await.is_err() {
            return;
        }
    }
}

/// What to ask for next.
#[derive(Debug, PartialEq, Eq)]
struct Ask {
    messages: usize,
    control: usize,
}

/// Divides the credit that is neither taken nor asked for. Control inputs have their share first. Messages are asked for in
/// halves of the rest, so that there is credit for further control inputs while a request for messages is open. With a credit of
/// one each stream is asked for one, else one of them would never be heard.
fn shares(total: usize, taken: usize, messages_asked: usize, control_asked: usize) -> Ask {
    if total == 1 {
        let is_free = taken == 0;
        return Ask {
            messages: usize::from(is_free && messages_asked == 0),
            control: usize::from(is_free && control_asked == 0),
        };
    }
    let kept = (total / CONTROL_SHARE).clamp(1, CONTROL_CREDIT_MAX);
    let free = total.saturating_sub(taken + messages_asked + control_asked);
    let control = if control_asked == 0 {
        kept.min(free.div_ceil(2))
    } else {
        0
    };
    let free = free - control;
    let messages = if messages_asked == 0 {
        free.div_ceil(2)
    } else {
        0
    };
    Ask { messages, control }
}

/// Reads a delivery. One that is no doorbell is taken out of its stream, so that it does not come back for ever.
async fn read(mesh: &Mesh, lane: Lane, delivery: &jetstream::Message) -> Option<Ring> {
    let subject = delivery.message.subject.as_str();
    let (seq, delivered) = match delivery.info() {
        Ok(info) => (
            info.stream_sequence,
            u64::try_from(info.delivered).unwrap_or(1),
        ),
        Err(error) => {
            tracing::error!(subject, %error, "a delivery does not say what it is");
            return None;
        }
    };
    let reply = delivery.message.reply.as_ref()?.to_string();
    match Doorbell::parse(subject) {
        Ok(bell) if bell.lane() == lane => Some(Ring {
            session: bell.session().clone(),
            lane,
            seq,
            is_kick: matches!(bell, Doorbell::Kick(_)),
            delivered,
            reply,
            mesh: mesh.clone(),
        }),
        Ok(_) => None,
        Err(error) => {
            tracing::error!(subject, seq, %error, "an input that is no session's is removed");
            let wire = mesh.wire();
            let _ = wire.tell(reply, None, Bytes::from_static(b"+TERM")).await;
            let _ = wire.delete(stream_of(lane), seq).await;
            None
        }
    }
}

fn stream_of(lane: Lane) -> &'static str {
    match lane {
        Lane::In => TURNS,
        Lane::Ctl => CONTROL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_never_exceeded_and_nobody_is_left_out() {
        for total in 2..200 {
            for taken in 0..=total {
                let ask = shares(total, taken, 0, 0);
                assert!(
                    taken + ask.messages + ask.control <= total,
                    "{total} {taken}"
                );
                assert_eq!(ask.control > 0, taken < total, "{total} {taken}");
                assert!(taken + 1 >= total || ask.messages > 0, "{total} {taken}");
            }
        }
        assert_eq!(
            shares(1, 0, 0, 0),
            Ask {
                messages: 1,
                control: 1
            }
        );
        assert_eq!(
            shares(1, 1, 0, 1),
            Ask {
                messages: 0,
                control: 0
            }
        );
    }

    #[test]
    fn a_delay_is_told_in_nanoseconds() {
        assert_eq!(nak(Duration::ZERO), "-NAK");
        assert_eq!(nak(Duration::from_millis(2)), "-NAK {\"delay\":2000000}");
    }
}
