//! Pulling from a consumer with exact credit: never more deliveries are asked for than there is room for.
//!
//! One [`Pull`] asks one consumer through one inbox, with one request at a time: the broker serves several requests of one
//! client in turn, so that nobody could say which of them is fulfilled. It keeps count of what was asked for and not yet
//! delivered, across expiries, lost requests and restarts of the broker, and says when the consumer must be made anew. It
//! decides nothing about deliveries.

use std::time::Duration;

use async_nats::{StatusCode, Subscriber, jetstream};
use futures::StreamExt as _;
use teamster_protocol::limits;
use tokio::time::{Instant, sleep_until};

use crate::wire::Wire;

/// How long a request is open. Short, because the credit of an open request cannot be used elsewhere, and because what is open
/// when a process freezes swallows deliveries; much shorter than half a lease in any case.
const EXPIRES: Duration = Duration::from_secs(2);
/// How much longer than its expiry a request is waited for. The broker says when a request is over; one that is not answered at
/// all is a sign that its consumer is gone.
const EXPIRY_SLACK: Duration = Duration::from_secs(2);

/// What a consumer that is pulled from brings.
pub(crate) enum Pulled {
    /// A delivery.
    Delivery(Box<jetstream::Message>),
    /// Requests ended without deliveries, or were lost: ask again.
    Expired,
    /// The consumer may be gone: make sure of it, then ask again.
    Broken(&'static str),
}

/// A request that is not fulfilled yet.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    id: u64,
    remaining: usize,
    expires: Instant,
}

/// Requests to one consumer.
pub(crate) struct Pull {
    wire: Wire,
    /// `$JS.API.CONSUMER.MSG.NEXT.<stream>.<consumer>`.
    subject: String,
    inbox: String,
    deliveries: Option<Subscriber>,
    request: Option<Request>,
    next_id: u64,
    losses: u64,
}

impl Pull {
    /// Nothing is asked for yet.
    pub(crate) fn new(wire: &Wire, stream: &str, consumer: &str) -> Self {
        Self {
            wire: wire.clone(),
            subject: format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"),
            inbox: String::new(),
            deliveries: None,
            request: None,
            next_id: 0,
            losses: wire.link.borrow().losses,
        }
    }

    /// How many deliveries are asked for and did not come yet.
    pub(crate) fn asked(&self) -> usize {
        self.request.as_ref().map_or(0, |request| request.remaining)
    }

    /// Asks for `count` deliveries, unless an earlier request is open.
    pub(crate) async fn ask(&mut self, count: usize) {
        if count == 0 || self.request.is_some() {
            return;
        }
        if self.deliveries.is_none() {
            // A fresh inbox for each life: what an older request brings must not be counted for a newer one.
            self.inbox = self.wire.client.new_inbox();
            match self
                .wire
                .client
                .subscribe(format!("{}.*", self.inbox))
                .await
            {
                Ok(deliveries) => self.deliveries = Some(deliveries),
                Err(error) => {
                    tracing::warn!(%error, "cannot subscribe to deliveries");
                    return;
                }
            }
            self.losses = self.wire.link.borrow().losses;
        }
        let body = serde_json::json!({
            "batch": count,
            "expires": u64::try_from(EXPIRES.as_nanos()).unwrap_or(u64::MAX),
        });
        let id = self.next_id;
        self.next_id += 1;
        let sent = self.wire.client.publish_with_reply(
            self.subject.clone(),
            format!("{}.{id}", self.inbox),
            body.to_string().into(),
        );
        if let Ok(Err(error)) = tokio::time::timeout(limits::BROKER_REQUEST, sent).await {
            tracing::warn!(%error, "cannot ask for deliveries");
        }
        self.request = Some(Request {
            id,
            remaining: count,
            expires: Instant::now() + EXPIRES + EXPIRY_SLACK,
        });
    }

    /// Lets the next [`Pull::ask`] ask again, though an earlier request is open: what that still brings is taken all the same.
    /// For readers that count nothing by what they asked for.
    pub(crate) fn ask_again(&mut self) {
        self.request = None;
    }

    /// What comes next. Cancel-safe. With nothing asked for it waits for ever.
    pub(crate) async fn next(&mut self) -> Pulled {
        loop {
            let Some(deliveries) = &mut self.deliveries else {
                return std::future::pending().await;
            };
            let mut link = self.wire.link.clone();
            let losses = self.losses;
            let until = self.request.as_ref().map(|request| request.expires);
            let message = tokio::select! {
                biased;
                message = deliveries.next() => message,
                _ = link.wait_for(|link| link.is_up && link.losses != losses) => {
                    self.reset();
                    return Pulled::Broken("the connection was lost");
                }
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {
                    // The inbox stays: what is on its way still arrives.
                    self.request = None;
                    return Pulled::Broken("a request was not answered");
                }
            };
            let Some(message) = message else {
                self.reset();
                return Pulled::Broken("the subscription ended");
            };
            match message.status {
                None => {
                    self.count_delivery();
                    let context = self.wire.context.clone();
                    return Pulled::Delivery(Box::new(jetstream::Message { message, context }));
                }
                Some(StatusCode::IDLE_HEARTBEAT) => {}
                Some(status) => {
                    let id = message.subject.rsplit_once('.').map(|(_, id)| id);
                    let id = id.and_then(|id| id.parse().ok());
                    if self.request.as_ref().map(|request| request.id) != id {
                        continue; // of an older request
                    }
                    self.request = None;
                    let words = message.description.as_deref().unwrap_or_default();
                    return match ending(status, words) {
                        Ending::Expired => Pulled::Expired,
                        Ending::Broken => Pulled::Broken("the broker ended the request"),
                    };
                }
            }
        }
    }

    /// Forgets all requests and what they may still bring.
    fn reset(&mut self) {
        self.deliveries = None;
        self.request = None;
    }

    fn count_delivery(&mut self) {
        if let Some(request) = &mut self.request {
            request.remaining = request.remaining.saturating_sub(1);
            if request.remaining == 0 {
                self.request = None;
            }
        }
    }
}

/// How a request ended that the broker ended.
#[derive(Debug, PartialEq, Eq)]
enum Ending {
    Expired,
    Broken,
}

/// 404 and 408 end a request whose time is over, and so do some of 409; everything else means that the consumer, its leader
/// or the whole stream is gone or changed.
fn ending(status: StatusCode, words: &str) -> Ending {
    let words = words.to_ascii_lowercase();
    let is_over = match status.as_u16() {
        404 | 408 => true,
        409 => words.contains("message size") || words.contains("maxbytes"),
        _ => false,
    };
    if is_over {
        Ending::Expired
    } else {
        Ending::Broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_2_only_a_request_whose_time_is_over_leaves_the_consumer_alone() {
        for (status, words, want) in [
            (404, "No Messages", Ending::Expired),
            (408, "Request Timeout", Ending::Expired),
            (409, "Message Size Exceeds MaxBytes", Ending::Expired),
            (409, "Consumer Deleted", Ending::Broken),
            (409, "Consumer is push based", Ending::Broken),
            (409, "Leadership Change", Ending::Broken),
            (409, "Server Shutdown", Ending::Broken),
            (409, "Exceeded MaxWaiting", Ending::Broken),
            (503, "", Ending::Broken),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(ending(status, words), want, "{status} {words}");
        }
    }
}
