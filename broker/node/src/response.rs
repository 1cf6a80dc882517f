//! What a request leads to: an answer now, an answer later, none, or the end of the connection.

use std::future::Future;
use std::pin::Pin;

use taffrail_log::{Disk, FileRange};

use crate::env::Env;

/// A response frame, length prefix included: bytes, with file ranges that stand between them.
pub struct Response<E: Env> {
    /// All bytes that do not come from files, in order.
    pub buffer: Vec<u8>,
    /// File ranges, ascending by position.
    pub files: Vec<ResponseFile<E>>,
}

/// A file range inside a [`Response`].
pub struct ResponseFile<E: Env> {
    /// The range is sent after this many bytes of [`Response::buffer`].
    pub position: usize,
    /// What to send.
    pub range: FileRange<<E::Disk as Disk>::File>,
}

/// A response without files is just bytes.
impl<E: Env> From<Vec<u8>> for Response<E> {
    fn from(buffer: Vec<u8>) -> Self {
        Self {
            buffer,
            files: Vec::new(),
        }
    }
}

/// The future of an answer that has to wait.
pub type ResponseFuture<E> = Pin<Box<dyn Future<Output = Handled<E>> + Send>>;

/// What [`crate::Node::handle`] decided about one request.
pub enum Handled<E: Env> {
    /// Send this.
    Ready(Response<E>),
    /// Send what the future gives, after the responses of earlier requests. It never gives `Pending` again.
    Pending {
        /// The answer to come.
        future: ResponseFuture<E>,
        /// Whether later requests of this connection may be handled meanwhile (a waiting Fetch or acks=all Produce).
        read_ahead: bool,
    },
    /// Send nothing: Produce with acks=0.
    NoReply,
    /// Close the connection, with this reason for the log.
    Close(String),
}
