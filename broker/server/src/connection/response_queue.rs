//! The answers of one connection that cannot be sent yet, in the order of their requests. All of them are worked on
//! together; they leave in order, as Kafka's clients expect.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use taffrail_node::{Handled, ResponseFuture};

use crate::env::ServerEnv;

/// One request's answer.
enum Slot {
    Finished(Handled<ServerEnv>),
    Waiting {
        future: ResponseFuture<ServerEnv>,
        read_ahead: bool,
    },
}

/// Answers that wait, for themselves or for one before them.
pub(super) struct ResponseQueue {
    slots: VecDeque<Slot>,
    requests_max: usize,
}

impl ResponseQueue {
    /// An empty queue that admits so many requests.
    pub(super) fn new(requests_max: usize) -> ResponseQueue {
        ResponseQueue {
            slots: VecDeque::new(),
            requests_max,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether another request may be handled now.
    pub(super) fn admits(&self) -> bool {
        // Only the last one can forbid it: nothing was admitted after it.
        let last_allows = match self.slots.back() {
            Some(Slot::Waiting { read_ahead, .. }) => *read_ahead,
            Some(Slot::Finished(_)) | None => true,
        };
        last_allows && self.slots.len() < self.requests_max
    }

    /// Adds the answer of the request that was handled last.
    pub(super) fn push(&mut self, handled: Handled<ServerEnv>) {
        self.slots.push_back(match handled {
            Handled::Pending { future, read_ahead } => Slot::Waiting { future, read_ahead },
            Handled::Ready(_) | Handled::NoReply | Handled::Close(_) => Slot::Finished(handled),
        });
    }

    /// Works on every answer that waits; ready once the first in line is finished.
    pub(super) fn poll_first(&mut self, context: &mut Context<'_>) -> Poll<()> {
        for slot in &mut self.slots {
            if let Slot::Waiting { future, .. } = slot
                && let Poll::Ready(handled) = future.as_mut().poll(context)
            {
                *slot = Slot::Finished(handled);
            }
        }
        match self.slots.front() {
            Some(Slot::Finished(_)) => Poll::Ready(()),
            Some(Slot::Waiting { .. }) | None => Poll::Pending,
        }
    }

    /// Takes the first in line if it is finished.
    pub(super) fn pop_finished(&mut self) -> Option<Handled<ServerEnv>> {
        match self.slots.pop_front()? {
            Slot::Finished(handled) => Some(handled),
            waiting @ Slot::Waiting { .. } => {
                self.slots.push_front(waiting);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taffrail_node::Response;

    fn ready(number: u8) -> Handled<ServerEnv> {
        Handled::Ready(Response::from(vec![number]))
    }

    fn pending(answer: tokio::sync::oneshot::Receiver<u8>, read_ahead: bool) -> Handled<ServerEnv> {
        let future = Box::pin(async move { answer.await.map_or(Handled::NoReply, ready) });
        Handled::Pending { future, read_ahead }
    }

    fn drain(queue: &mut ResponseQueue) -> Vec<u8> {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut sent = Vec::new();
        while queue.poll_first(&mut context).is_ready() {
            match queue.pop_finished() {
                Some(Handled::Ready(response)) => sent.extend(response.buffer),
                Some(_) => sent.push(0),
                None => break,
            }
        }
        sent
    }

    #[test]
    fn answers_leave_in_the_order_of_their_requests() {
        let (first, first_answer) = tokio::sync::oneshot::channel();
        let (second, second_answer) = tokio::sync::oneshot::channel();
        let mut queue = ResponseQueue::new(10);
        queue.push(pending(first_answer, true));
        queue.push(pending(second_answer, true));
        queue.push(ready(3));
        second.send(2).unwrap();
        assert_eq!(drain(&mut queue), Vec::<u8>::new());
        first.send(1).unwrap();
        assert_eq!(drain(&mut queue), [1, 2, 3]);
        assert!(queue.is_empty());
    }

    #[test]
    fn nothing_is_admitted_behind_an_answer_that_forbids_it_or_above_the_limit() {
        let (sender, answer) = tokio::sync::oneshot::channel();
        let mut queue = ResponseQueue::new(2);
        assert!(queue.admits());
        queue.push(pending(answer, false));
        assert!(!queue.admits());
        sender.send(1).unwrap();
        assert_eq!(drain(&mut queue), [1]);
        assert!(queue.admits());
        let (_open, answer) = tokio::sync::oneshot::channel();
        queue.push(pending(answer, true));
        assert!(queue.admits());
        queue.push(ready(2));
        assert!(!queue.admits());
    }
}
