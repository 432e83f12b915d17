//! The requests that this process runs or has finished, by id.
//!
//! Owns: that one id is run once at a time here, that everybody who asks for it hears the same answer, and a bounded memory
//! of answers.
//!
//! Never: the mesh. Other processes and what the broker keeps are asked elsewhere.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use teamster_protocol::{
    RequestId,
    function::router::{Completion, Part},
    limits,
};
use tokio::{sync::watch, time::Instant};

use crate::engine::Stop;

/// Bytes that a remembered completion counts for besides its text.
const COMPLETION_BYTES: usize = 512;

/// All flights of this process.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    running: HashMap<RequestId, Flight>,
    finished: HashMap<RequestId, Arc<Completion>>,
    order: VecDeque<(Instant, RequestId, usize)>,
    bytes: usize,
}

/// A request that is running here.
#[derive(Debug, Clone)]
pub(crate) struct Flight {
    stop: Stop,
    result: watch::Receiver<Option<Arc<Completion>>>,
}

/// What is known of a request.
#[derive(Debug)]
pub(crate) enum Entered {
    /// It has finished.
    Finished(Arc<Completion>),
    /// It is running here.
    Running(Flight),
    /// It is new: whoever holds this must run it.
    New(Takeoff),
}

/// The duty to run a request. Dropping it without [`Takeoff::land`] lets everybody who waits go without an answer.
#[derive(Debug)]
pub(crate) struct Takeoff {
    id: RequestId,
    flights: Arc<Flights>,
    flight: Flight,
    result: watch::Sender<Option<Arc<Completion>>>,
}

impl Flights {
    /// Enters a request.
    pub(crate) fn enter(self: &Arc<Self>, id: &RequestId) -> Entered {
        let mut table = self.table();
        table.forget_old();
        if let Some(completion) = table.finished.get(id) {
            return Entered::Finished(Arc::clone(completion));
        }
        match table.running.entry(id.clone()) {
            Entry::Occupied(running) => Entered::Running(running.get().clone()),
            Entry::Vacant(place) => {
                let (sender, result) = watch::channel(None);
                let flight = Flight {
                    stop: Stop::default(),
                    result,
                };
                place.insert(flight.clone());
                Entered::New(Takeoff {
                    id: id.clone(),
                    flights: Arc::clone(self),
                    flight,
                    result: sender,
                })
            }
        }
    }

    /// The running request of an id.
    pub(crate) fn running(&self, id: &RequestId) -> Option<Flight> {
        self.table().running.get(id).cloned()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn forget_old(&mut self) {
        while self
            .order
            .front()
            .is_some_and(|(at, ..)| at.elapsed() > limits::CALL_MEMORY)
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, id, bytes)) = self.order.pop_front() {
            self.finished.remove(&id);
            self.bytes -= bytes;
        }
    }

    fn remember(&mut self, id: RequestId, completion: Arc<Completion>) {
        let bytes = bytes(&completion);
        self.bytes += bytes;
        self.order.push_back((Instant::now(), id.clone(), bytes));
        self.finished.insert(id, completion);
        while self.bytes > limits::GENERATION_MEMORY_BYTES_MAX {
            self.forget_oldest();
        }
    }
}

impl Flight {
    /// How to end it.
    pub(crate) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Waits for the answer; `None` if whoever ran it is gone. Cancel-safe.
    pub(crate) async fn landed(&mut self) -> Option<Arc<Completion>> {
        let result = self.result.wait_for(Option::is_some).await.ok()?;
        result.clone()
    }
}

impl Takeoff {
    /// The flight as others see it.
    pub(crate) fn flight(&self) -> &Flight {
        &self.flight
    }

    /// Gives everybody the answer, and remembers it if it is the request's answer for good.
    pub(crate) fn land(self, completion: Completion, is_for_good: bool) {
        let completion = Arc::new(completion);
        if is_for_good {
            self.flights
                .table()
                .remember(self.id.clone(), Arc::clone(&completion));
        }
        self.result.send_replace(Some(completion));
    }
}

impl Drop for Takeoff {
    fn drop(&mut self) {
        self.flights.table().running.remove(&self.id);
    }
}

fn bytes(completion: &Completion) -> usize {
    let part = |part: &Part| match part {
        Part::Text { text } | Part::Thinking { text, .. } => text.len(),
        Part::Call { name, arguments } => name.len() + arguments.len(),
    };
    COMPLETION_BYTES + completion.parts.iter().map(part).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use teamster_protocol::{message::StopReason, usage::Usage};

    use super::*;

    fn id(n: usize) -> RequestId {
        RequestId::parse(format!("s.{n}.1")).expect("valid")
    }

    fn completion(text: &str) -> Completion {
        Completion {
            parts: vec![Part::Text {
                text: text.to_owned(),
            }],
            stop: StopReason::End,
            error: None,
            usage: Usage::default(),
            cost: None,
            model: "m".to_owned(),
            attempts: 1,
        }
    }

    #[tokio::test]
    async fn one_id_is_run_once_and_answered_to_all() {
        let flights = Arc::new(Flights::default());
        let Entered::New(takeoff) = flights.enter(&id(1)) else {
            panic!("new")
        };
        let Entered::Running(mut joined) = flights.enter(&id(1)) else {
            panic!("running")
        };
        takeoff.land(completion("a"), true);
        assert_eq!(joined.landed().await.as_deref(), Some(&completion("a")));
        let Entered::Finished(kept) = flights.enter(&id(1)) else {
            panic!("finished")
        };
        assert_eq!(*kept, completion("a"));
        assert!(flights.running(&id(1)).is_none());
    }

    #[tokio::test]
    async fn what_is_not_for_good_is_told_and_not_remembered() {
        let flights = Arc::new(Flights::default());
        let Entered::New(takeoff) = flights.enter(&id(1)) else {
            panic!("new")
        };
        let mut joined = takeoff.flight().clone();
        takeoff.land(completion("a"), false);
        assert!(joined.landed().await.is_some());
        assert!(matches!(flights.enter(&id(1)), Entered::New(_)));
    }

    #[tokio::test]
    async fn a_lost_flight_lets_its_passengers_go() {
        let flights = Arc::new(Flights::default());
        let Entered::New(takeoff) = flights.enter(&id(1)) else {
            panic!("new")
        };
        let mut joined = takeoff.flight().clone();
        drop(takeoff);
        assert_eq!(joined.landed().await, None);
        assert!(matches!(flights.enter(&id(1)), Entered::New(_)));
    }

    #[test]
    fn the_memory_is_bounded() {
        let flights = Arc::new(Flights::default());
        let text = "x".repeat(limits::COMPLETION_BYTES_MAX);
        for n in 0..200 {
            let Entered::New(takeoff) = flights.enter(&id(n)) else {
                panic!("new")
            };
            takeoff.land(completion(&text), true);
        }
        let table = flights.table();
        assert!(table.bytes <= limits::GENERATION_MEMORY_BYTES_MAX && table.finished.len() < 200);
        assert_eq!(table.finished.len(), table.order.len());
        assert!(table.finished.contains_key(&id(199)) && !table.finished.contains_key(&id(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_answer_is_forgotten() {
        let flights = Arc::new(Flights::default());
        let Entered::New(takeoff) = flights.enter(&id(1)) else {
            panic!("new")
        };
        takeoff.land(completion("a"), true);
        tokio::time::advance(limits::CALL_MEMORY * 2).await;
        assert!(matches!(flights.enter(&id(1)), Entered::New(_)));
    }
}
