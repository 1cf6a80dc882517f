//! Topic, directory and other ids: 16 bytes, shown as Kafka shows them.

use std::fmt;
use std::str::FromStr;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// 16 bytes; prints as URL-safe base64 without padding, 22 characters (`org.apache.kafka.common.Uuid`).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

/// A text that is no id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id is 22 characters of URL-safe base64")]
pub struct UuidError;

impl Uuid {
    /// No id.
    pub const ZERO: Self = Self([0; 16]);

    /// Whether this is no id.
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from_be_bytes(self.0);
        let mut text = [0u8; 22];
        for (position, letter) in text.iter_mut().enumerate() {
            // 22 groups of six bits hold 132: the last one has four zero bits behind its two.
            let group = match 122 - 6 * position as i32 {
                shift if shift >= 0 => bits >> shift,
                _ => bits << 4,
            };
            *letter = ALPHABET[(group & 0x3f) as usize];
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uuid({self})")
    }
}

impl FromStr for Uuid {
    type Err = UuidError;

    fn from_str(text: &str) -> Result<Self, UuidError> {
        if text.len() != 22 {
            return Err(UuidError);
        }
        let mut bits = 0u128;
        for (position, letter) in text.bytes().enumerate() {
            let group = ALPHABET
                .iter()
                .position(|known| *known == letter)
                .ok_or(UuidError)? as u128;
            bits = if position < 21 {
                bits << 6 | group
            } else {
                bits << 2 | group >> 4
            };
        }
        let id = Self(bits.to_be_bytes());
        Ok(id)
    }
}

impl From<[u8; 16]> for Uuid {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_as_kafka_prints_them_and_parse_back() {
        let counted = std::array::from_fn(|position| position as u8 * 17);
        for (bytes, text) in [
            ([0; 16], "AAAAAAAAAAAAAAAAAAAAAA"),
            ([255; 16], "_____________________w"),
            (counted, "ABEiM0RVZneImaq7zN3u_w"),
        ] {
            assert_eq!(Uuid(bytes).to_string(), text);
            assert_eq!(text.parse(), Ok(Uuid(bytes)));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "AAAA",
            "AAAAAAAAAAAAAAAAAAAAA=",
            "AAAAAAAAAAAAAAAAAAAAAAA",
        ] {
            assert_eq!(text.parse::<Uuid>(), Err(UuidError));
        }
    }
}
