//! What a record carries: `key|process|number|filler|checksum`, so that a reader knows which send it came from and that it is whole.

/// Makes a record as large as a small event, so that segments roll and disks have something to do.
const FILLER: &str = "........................................................................................................................\
    ........................................................................................................................\
    ........................................................................................................................";

/// The longest run of one process: 2^40 sends.
const NUMBER_BITS: u32 = 40;

/// The key of a partition in histories.
pub(crate) fn key(topic: &str, partition: i32) -> String {
    format!("{topic}/{partition}")
}

/// A value that no other send of the run has.
pub(crate) fn value(process: u32, number: u64) -> u64 {
    (u64::from(process) << NUMBER_BITS) | number
}

/// The bytes of a record.
pub(crate) fn payload(key: &str, value: u64) -> String {
    let (process, number) = (value >> NUMBER_BITS, value & ((1 << NUMBER_BITS) - 1));
    let text = format!("{key}|{process}|{number}|{FILLER}");
    format!("{text}|{:08x}", checksum(text.as_bytes()))
}

/// The value in a record of this key, if it is whole.
pub(crate) fn parse(payload: &[u8], key: &str) -> Option<u64> {
    let text = std::str::from_utf8(payload).ok()?;
    let (body, sum) = text.rsplit_once('|')?;
    if u64::from_str_radix(sum, 16).ok()? != checksum(body.as_bytes()) {
        return None;
    }
    let (body, _) = body.rsplit_once('|')?;
    let (rest, number) = body.rsplit_once('|')?;
    let (named, process) = rest.rsplit_once('|')?;
    let (process, number) = (process.parse().ok()?, number.parse().ok()?);
    (named == key).then(|| value(process, number))
}

fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_names_its_send_and_shows_damage() {
        let whole = payload("load/3", value(7, 41));
        assert_eq!(parse(whole.as_bytes(), "load/3"), Some(value(7, 41)));
        assert_eq!(parse(whole.as_bytes(), "load/2"), None, "another key");
        assert_eq!(
            parse(whole.replace("41", "42").as_bytes(), "load/3"),
            None,
            "one digit changed"
        );
        assert_eq!(parse(b"\xff", "load/3"), None, "not text");
    }
}
