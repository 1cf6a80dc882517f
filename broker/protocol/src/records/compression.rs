//! The codecs of record batches. Decompression stops at a limit; no length within the data is believed.

use std::io::{Read, Write};

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
    /// Raw, or in the framing of snappy-java ("xerial") that Kafka's clients use.
    Snappy,
    /// LZ4 frame format.
    Lz4,
    /// RFC 8878.
    Zstd,
}

impl Compression {
    /// The value of the attribute bits.
    pub fn code(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    /// The codec of the attribute bits, if they name one.
    pub fn from_code(code: i16) -> Option<Self> {
        match code {
            0 => Some(Self::None),
            1 => Some(Self::Gzip),
            2 => Some(Self::Snappy),
            3 => Some(Self::Lz4),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The name in `compression.type`; `none` stands for what Kafka calls `uncompressed` there.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// Data that does not decompress.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// More than the caller allows.
    #[error("more than {limit} bytes when decompressed")]
    TooLarge {
        /// The limit that was given.
        limit: usize,
    },
    /// Damaged data.
    #[error("bad {codec} data: {reason}")]
    Corrupt {
        /// The codec.
        codec: &'static str,
        /// What its library says.
        reason: String,
    },
}

/// In front of snappy-java's chunks: magic, then two version numbers of four bytes each, which Kafka ignores too.
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const XERIAL_HEADER_LENGTH: usize = 16;
/// snappy-java's chunk before compression.
const XERIAL_CHUNK: usize = 32 * 1024;
/// A snappy copy of 64 bytes takes at least two bytes; a claim beyond that is a lie.
const SNAPPY_MAX_RATIO: usize = 32;

/// The decompressed bytes, at most `limit` of them.
pub fn decompress(
    codec: Compression,
    bytes: &[u8],
    limit: usize,
) -> Result<Vec<u8>, DecompressError> {
    match codec {
        Compression::None if bytes.len() > limit => Err(DecompressError::TooLarge { limit }),
        Compression::None => Ok(bytes.to_vec()),
        Compression::Gzip => read_bounded(codec, flate2::read::MultiGzDecoder::new(bytes), limit),
        Compression::Snappy => decompress_snappy(bytes, limit),
        Compression::Lz4 => read_bounded(codec, lz4_flex::frame::FrameDecoder::new(bytes), limit),
        Compression::Zstd => decompress_zstd(bytes, limit),
    }
}

fn corrupt(codec: Compression, reason: impl ToString) -> DecompressError {
    DecompressError::Corrupt {
        codec: codec.name(),
        reason: reason.to_string(),
    }
}

fn read_bounded(
    codec: Compression,
    reader: impl Read,
    limit: usize,
) -> Result<Vec<u8>, DecompressError> {
    let mut out = Vec::new();
    let mut bounded = reader.take(limit as u64 + 1);
    bounded
        .read_to_end(&mut out)
        .map_err(|error| corrupt(codec, error))?;
    if out.len() > limit {
        return Err(DecompressError::TooLarge { limit });
    }
    Ok(out)
}

fn decompress_snappy(bytes: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    let mut out = Vec::new();
    if !bytes.starts_with(&XERIAL_MAGIC) {
        append_snappy(&mut out, bytes, limit)?;
        return Ok(out);
    }
    let mut rest = bytes
        .get(XERIAL_HEADER_LENGTH..)
        .ok_or_else(|| corrupt(Compression::Snappy, "header cut off"))?;
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let Some(chunk) = behind.get(..length) else {
            return Err(corrupt(Compression::Snappy, "chunk cut off"));
        };
        append_snappy(&mut out, chunk, limit)?;
        rest = &behind[length..];
    }
    match rest {
        [] => Ok(out),
        _ => Err(corrupt(Compression::Snappy, "chunk length cut off")),
    }
}

fn append_snappy(out: &mut Vec<u8>, block: &[u8], limit: usize) -> Result<(), DecompressError> {
    let length =
        snap::raw::decompress_len(block).map_err(|error| corrupt(Compression::Snappy, error))?;
    if length > limit.saturating_sub(out.len()) {
        return Err(DecompressError::TooLarge { limit });
    }
    if length > block.len().saturating_mul(SNAPPY_MAX_RATIO) {
        return Err(corrupt(Compression::Snappy, "claims more than it can hold"));
    }
    let start = out.len();
    out.resize(start + length, 0);
    let written = snap::raw::Decoder::new()
        .decompress(block, &mut out[start..])
        .map_err(|error| corrupt(Compression::Snappy, error))?;
    out.truncate(start + written);
    Ok(())
}

/// In one piece and not as a stream, for a stream allocates the window that the frame claims, up to 128 MiB.
fn decompress_zstd(bytes: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    let Some(bound) = zstd::bulk::Decompressor::upper_bound(bytes) else {
        return Err(corrupt(Compression::Zstd, "no whole frames"));
    };
    match zstd::bulk::decompress(bytes, bound.min(limit)) {
        Ok(out) => Ok(out),
        Err(_) if bound > limit => Err(DecompressError::TooLarge { limit }),
        Err(error) => Err(corrupt(Compression::Zstd, error)),
    }
}

/// The compressed bytes, in each codec's default level.
pub fn compress(codec: Compression, bytes: &[u8]) -> Vec<u8> {
    match codec {
        Compression::None => bytes.to_vec(),
        Compression::Gzip => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder
                .write_all(bytes)
                .and_then(|()| encoder.finish())
                .expect("a Vec takes every write")
        }
        Compression::Snappy => compress_xerial(bytes),
        Compression::Lz4 => {
            // Kafka's reader takes independent blocks only, and clients write blocks of 64 KiB.
            let frame = lz4_flex::frame::FrameInfo::new()
                .block_size(lz4_flex::frame::BlockSize::Max64KB)
                .block_mode(lz4_flex::frame::BlockMode::Independent);
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(frame, Vec::new());
            encoder.write_all(bytes).expect("a Vec takes every write");
            encoder.finish().expect("a Vec takes every write")
        }
        Compression::Zstd => zstd::bulk::compress(bytes, zstd::DEFAULT_COMPRESSION_LEVEL)
            .expect("the buffer has the size that zstd asks for"),
    }
}

fn compress_xerial(bytes: &[u8]) -> Vec<u8> {
    let mut out = XERIAL_MAGIC.to_vec();
    out.extend_from_slice(&1u32.to_be_bytes());
    out.extend_from_slice(&1u32.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for chunk in bytes.chunks(XERIAL_CHUNK) {
        let block = encoder
            .compress_vec(chunk)
            .expect("a chunk is far below snappy's limit of 4 GiB");
        out.extend_from_slice(&(block.len() as u32).to_be_bytes());
        out.extend_from_slice(&block);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODECS: [Compression; 5] = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];

    fn sample(length: usize) -> Vec<u8> {
        (0..length)
            .map(|position| ((position % 251) ^ (position / 1000)) as u8)
            .collect()
    }

    #[test]
    fn every_codec_gives_back_what_it_got() {
        for codec in CODECS {
            for length in [0, 1, 100, 70_000, 300_000] {
                let bytes = sample(length);
                let compressed = compress(codec, &bytes);
                assert_eq!(
                    decompress(codec, &compressed, length),
                    Ok(bytes),
                    "{codec:?} {length}"
                );
            }
        }
    }

    #[test]
    fn more_than_the_limit_is_refused() {
        let zeros = vec![0; 1_000_000];
        for codec in CODECS {
            let compressed = compress(codec, &zeros);
            for limit in [0, 1000, 999_999] {
                assert_eq!(
                    decompress(codec, &compressed, limit),
                    Err(DecompressError::TooLarge { limit }),
                    "{codec:?}"
                );
            }
        }
    }

    fn check_vector(codec: Compression, compressed: &[u8], expected: &[u8]) {
        assert_eq!(
            decompress(codec, compressed, 1000).as_deref(),
            Ok(expected),
            "{codec:?}"
        );
    }

    /// Written by hand from the format descriptions; what Kafka itself writes is in tests/records.rs.
    #[test]
    fn raw_and_framed_snappy_are_read() {
        let mut raw = vec![26, 8 << 2];
        raw.extend_from_slice(b"taffrail ");
        raw.extend_from_slice(&[16 << 2 | 2, 9, 0]);
        check_vector(Compression::Snappy, &raw, b"taffrail taffrail taffrail");
        let mut xerial = XERIAL_MAGIC.to_vec();
        xerial.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1]);
        for _ in 0..2 {
            xerial.extend_from_slice(&(raw.len() as u32).to_be_bytes());
            xerial.extend_from_slice(&raw);
        }
        check_vector(
            Compression::Snappy,
            &xerial,
            b"taffrail taffrail taffrailtaffrail taffrail taffrail",
        );
    }

    #[test]
    fn damaged_data_is_refused_at_every_length() {
        for codec in CODECS {
            let compressed = compress(codec, &sample(5000));
            for length in 0..compressed.len() {
                let _ = decompress(codec, &compressed[..length], 10_000);
                let mut flipped = compressed.clone();
                flipped[length] ^= 0x55;
                let _ = decompress(codec, &flipped, 10_000);
            }
        }
    }

    #[test]
    fn a_small_snappy_block_cannot_claim_the_limit() {
        let claim = [0xff, 0xff, 0xff, 0x7f, 0];
        assert!(matches!(
            decompress(Compression::Snappy, &claim, usize::MAX),
            Err(DecompressError::Corrupt { .. })
        ));
    }
}
