//! What brokers and the operator answer on their HTTP ports.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result};

/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Far more than the metrics or the state of any cluster of a test.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The status and the body of a GET; `url` is `http://host:port/path`.
pub fn get(url: &str) -> Result<(u16, String)> {
    let asked = || format!("GET {url}");
    let (address, path) = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .with_context(asked)?;
    let mut stream = TcpStream::connect(address).with_context(asked)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    write!(
        stream,
        "GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    let mut stream = stream.take(ANSWER_BYTES_MAX);
    stream.read_to_string(&mut answer).with_context(asked)?;
    let (head, body) = answer.split_once("\r\n\r\n").with_context(asked)?;
    let status = head.split(' ').nth(1).with_context(asked)?;
    let status = status.parse::<u16>().with_context(asked)?;
    Ok((status, body.to_owned()))
}

/// The value of a metric on a page of them: of its only series, or of the one whose labels are part of the name.
pub fn metric(url: &str, name: &str) -> Result<Option<f64>> {
    let (_, page) = get(url)?;
    value(&page, name)
}

fn value(page: &str, name: &str) -> Result<Option<f64>> {
    let mut rests = page.lines().filter_map(|line| line.strip_prefix(name));
    let Some(rest) = rests.find(|rest| rest.starts_with([' ', '{'])) else {
        return Ok(None);
    };
    let number = rest.rsplit(' ').next().context("a value")?;
    let value = number.parse::<f64>().with_context(|| name.to_owned())?;
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_found_by_their_whole_name() {
        let page = "# TYPE a_total counter\na_total{topic=\"x\"} 2\na_total{topic=\"y\"} 3\na 1\n";
        let check = |name: &str, expected: Option<f64>| {
            assert_eq!(value(page, name).expect("numbers"), expected, "{name}");
        };
        check("a", Some(1.0));
        check("a_total", Some(2.0));
        check("a_total{topic=\"y\"}", Some(3.0));
        check("a_tot", None);
    }
}
