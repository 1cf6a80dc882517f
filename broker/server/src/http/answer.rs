//! One HTTP answer: a status, a type and a body that is there at once.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

/// What a path leads to.
pub(super) struct Answer {
    status: u16,
    content_type: &'static str,
    body: String,
}

impl Answer {
    pub(super) fn text(status: u16, body: &str) -> Answer {
        Answer {
            status,
            content_type: "text/plain; charset=utf-8",
            body: body.to_string(),
        }
    }

    pub(super) fn html(body: &str) -> Answer {
        Answer {
            status: 200,
            content_type: "text/html; charset=utf-8",
            body: body.to_string(),
        }
    }

    pub(super) fn prometheus(body: String) -> Answer {
        Answer {
            status: 200,
            content_type: prometheus::TEXT_FORMAT,
            body,
        }
    }

    pub(super) fn json(status: u16, value: &impl Serialize) -> Answer {
        match serde_json::to_string(value) {
            Ok(body) => Answer {
                status,
                content_type: "application/json",
                body,
            },
            Err(error) => Answer::text(500, &format!("{error}\n")),
        }
    }

    pub(super) fn into_response(self) -> Response<WholeBody> {
        let mut response = Response::new(WholeBody(Some(self.body.into())));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        // The page has its script and style inside and asks only this broker.
        let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'";
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
        response
    }
}

/// A body of one piece.
pub(super) struct WholeBody(Option<Bytes>);

impl Body for WholeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
