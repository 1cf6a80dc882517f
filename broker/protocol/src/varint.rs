//! Base-128 varints, least significant group first; signed ones in zigzag order (Kafka's `ByteUtils`, Protocol Buffers).

/// Why no varint could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VarintError {
    /// The bytes end within it.
    #[error("the varint is cut off")]
    Truncated,
    /// It does not fit its type.
    #[error("the varint is too long")]
    TooLong,
}

/// An unsigned 32-bit varint and the bytes that it took.
#[inline]
pub fn read_unsigned(bytes: &[u8]) -> Result<(u32, usize), VarintError> {
    if let Some(&first) = bytes.first().filter(|first| **first < 0x80) {
        return Ok((u32::from(first), 1));
    }
    let (value, length) = read_bits(bytes, 5)?;
    u32::try_from(value)
        .map(|value| (value, length))
        .map_err(|_| VarintError::TooLong)
}

/// A zigzag 32-bit varint and the bytes that it took.
#[inline]
pub fn read(bytes: &[u8]) -> Result<(i32, usize), VarintError> {
    let (value, length) = read_unsigned(bytes)?;
    Ok(((value >> 1) as i32 ^ -((value & 1) as i32), length))
}

/// A zigzag 64-bit varint and the bytes that it took.
#[inline]
pub fn read_long(bytes: &[u8]) -> Result<(i64, usize), VarintError> {
    let (value, length) = read_bits(bytes, 10)?;
    Ok(((value >> 1) as i64 ^ -((value & 1) as i64), length))
}

#[inline]
fn read_bits(bytes: &[u8], longest: usize) -> Result<(u64, usize), VarintError> {
    let mut value = 0u64;
    for (position, &byte) in bytes.iter().take(longest).enumerate() {
        let shift = 7 * position as u32;
        let group = u64::from(byte & 0x7f);
        // The tenth group of a 64-bit varint has room for one bit.
        if shift == 63 && group > 1 {
            return Err(VarintError::TooLong);
        }
        value |= group << shift;
        if byte < 0x80 {
            return Ok((value, position + 1));
        }
    }
    Err(if bytes.len() < longest {
        VarintError::Truncated
    } else {
        VarintError::TooLong
    })
}

/// Appends an unsigned varint.
#[inline]
pub fn write_unsigned(out: &mut Vec<u8>, value: u32) {
    write_bits(out, u64::from(value));
}

/// Appends a zigzag 32-bit varint.
#[inline]
pub fn write(out: &mut Vec<u8>, value: i32) {
    write_bits(out, u64::from(((value << 1) ^ (value >> 31)) as u32));
}

/// Appends a zigzag 64-bit varint.
#[inline]
pub fn write_long(out: &mut Vec<u8>, value: i64) {
    write_bits(out, ((value << 1) ^ (value >> 63)) as u64);
}

#[inline]
fn write_bits(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_long(value: i64, bytes: &[u8]) {
        let mut out = Vec::new();
        write_long(&mut out, value);
        assert_eq!(out, bytes, "{value}");
        assert_eq!(read_long(bytes), Ok((value, bytes.len())), "{value}");
        if let Ok(value) = i32::try_from(value) {
            let mut out = Vec::new();
            write(&mut out, value);
            assert_eq!(out, bytes, "{value}");
            assert_eq!(read(bytes), Ok((value, bytes.len())), "{value}");
        }
    }

    #[test]
    fn zigzag_values_have_known_bytes() {
        check_long(0, &[0]);
        check_long(-1, &[1]);
        check_long(1, &[2]);
        check_long(-64, &[0x7f]);
        check_long(64, &[0x80, 0x01]);
        check_long(i64::from(i32::MAX), &[0xfe, 0xff, 0xff, 0xff, 0x0f]);
        check_long(i64::from(i32::MIN), &[0xff, 0xff, 0xff, 0xff, 0x0f]);
        check_long(
            i64::MAX,
            &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        );
        check_long(
            i64::MIN,
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        );
    }

    #[test]
    fn unsigned_values_have_known_bytes() {
        for (value, bytes) in [
            (0, &[0][..]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (300, &[0xac, 2]),
            (u32::MAX, &[255, 255, 255, 255, 15]),
        ] {
            let mut out = Vec::new();
            write_unsigned(&mut out, value);
            assert_eq!(out, bytes);
            assert_eq!(read_unsigned(bytes), Ok((value, bytes.len())));
        }
    }

    #[test]
    fn bad_varints_are_refused() {
        assert_eq!(read_unsigned(&[]), Err(VarintError::Truncated));
        assert_eq!(read_unsigned(&[0x80]), Err(VarintError::Truncated));
        assert_eq!(
            read_unsigned(&[0xff, 0xff, 0xff, 0xff, 0x1f]),
            Err(VarintError::TooLong)
        );
        assert_eq!(read_unsigned(&[0x80; 6]), Err(VarintError::TooLong));
        assert_eq!(read_long(&[0x80; 9]), Err(VarintError::Truncated));
        assert_eq!(read_long(&[0xff; 11]), Err(VarintError::TooLong));
        let mut last_group_too_large = [0xff; 10];
        last_group_too_large[9] = 2;
        assert_eq!(read_long(&last_group_too_large), Err(VarintError::TooLong));
    }
}
