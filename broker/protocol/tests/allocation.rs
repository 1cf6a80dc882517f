//! How much memory the decoders take: never more than a small multiple of the bytes that arrived.

mod support;

use support::{Source, codecs, definitions, message_bytes};
use taffrail_allocation::{Counting, measure};
use taffrail_protocol::Message;
use taffrail_protocol::messages::{FetchRequest, MetadataRequest, ProduceRequest};
use taffrail_protocol::records::{Compression, compress, decompress};
use taffrail_protocol::{DecodeError, Reader};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What every decoder is held to.
fn allowed(frame: usize) -> usize {
    16 * frame + 64 * 1024
}

/// The frame that made another codec ask for 206 GB.
#[test]
fn twelve_bytes_that_claim_two_thousand_million_topics() {
    let frame = [0xff, 0xff, 0, 1, 0, 0, 0x75, 0x30, 0x7f, 0xff, 0xff, 0xff];
    let (result, taken) = measure(|| ProduceRequest::decode(&mut Reader::new(&frame), 3));
    assert!(
        matches!(
            result,
            Err(DecodeError::ArrayTooLong {
                length: 0x7fff_ffff,
                ..
            })
        ),
        "{result:?}"
    );
    assert!(taken.peak < 1000, "{taken:?}");
}

#[test]
fn a_large_frame_that_would_swell_is_refused_before_it_does() {
    // A zero id and a null name for each of a million topics: 18 bytes each, 40 in memory: within the limit.
    let mut frame = vec![0xc1, 0x84, 0x3d];
    for _ in 0..1_000_000 {
        frame.extend_from_slice(&[0; 16]);
        frame.extend_from_slice(&[0, 0]);
    }
    frame.extend_from_slice(&[0, 0, 0]);
    let (result, taken) = measure(|| MetadataRequest::decode(&mut Reader::new(&frame), 12).is_ok());
    assert!(result && taken.peak < 3 * frame.len(), "{taken:?}");
    // A byte for each element, 64 in memory: beyond.
    let swelling = |r: &mut Reader<'_>| r.array(true, 1, |r| r.i8().map(|_| [0u64; 8]));
    let mut frame = vec![0xc1, 0x84, 0x3d];
    frame.resize(1_000_003, 0);
    let (result, taken) = measure(|| swelling(&mut Reader::new(&frame)).map(|array| array.len()));
    assert_eq!(
        result,
        Err(DecodeError::TooMuchMemory { frame: frame.len() })
    );
    assert!(taken.peak < 1000, "{taken:?}");
}

#[test]
fn no_message_takes_more_than_a_small_multiple_of_its_frame() {
    let codecs = codecs();
    let mut source = Source::new(3);
    for definition in definitions() {
        let codec = codecs
            .iter()
            .find(|codec| codec.name == definition.name)
            .expect("known");
        for version in definition.versions.first..=definition.versions.last {
            let bytes = message_bytes(&definition, version, &mut Source::new(1));
            for at in 0..bytes.len() {
                // Lengths of every width grow here: one, four and five bytes in a row.
                for (width, pattern) in [
                    (1, [0x7f; 5]),
                    (4, [0x7f; 5]),
                    (5, [0xff, 0xff, 0xff, 0xff, 0x07]),
                ] {
                    let mut claiming = bytes.clone();
                    for (target, byte) in claiming[at..].iter_mut().zip(&pattern[..width]) {
                        *target = *byte;
                    }
                    let (_, taken) = measure(|| (codec.decodes)(&claiming, version));
                    assert!(
                        taken.peak <= allowed(claiming.len()),
                        "{} {version}: {taken:?}",
                        codec.name
                    );
                }
            }
            let length = source.below(200) as usize;
            let random = source.bytes(length);
            let (_, taken) = measure(|| (codec.decodes)(&random, version));
            assert!(
                taken.peak <= allowed(random.len()),
                "{} {version}: {taken:?}",
                codec.name
            );
        }
    }
}

#[test]
fn decompression_takes_no_more_than_its_limit_and_what_the_codec_works_with() {
    const WORKING_MEMORY: usize = 512 * 1024;
    let bomb = vec![0; 20_000_000];
    for codec in [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let compressed = compress(codec, &bomb);
        let limit = 1_000_000;
        let (result, taken) = measure(|| decompress(codec, &compressed, limit));
        assert!(result.is_err());
        assert!(
            taken.peak <= 2 * limit + WORKING_MEMORY,
            "{codec:?}: {taken:?}"
        );
    }
}

/// One array for the topics, one for the partitions of each, and a string per name: records are not copied.
#[test]
fn produce_and_fetch_allocate_little() {
    let records = vec![7; 100_000];
    let mut frame = vec![0, 0xff, 0xff, 0, 0, 0x75, 0x30, 2];
    frame.extend_from_slice(&[9; 16]);
    frame.extend_from_slice(&[2, 0, 0, 0, 1]);
    frame.extend_from_slice(&[0xa1, 0x8d, 0x06]);
    frame.extend_from_slice(&records);
    frame.extend_from_slice(&[0, 0, 0]);
    let (result, taken) = measure(|| ProduceRequest::decode(&mut Reader::new(&frame), 13));
    let request = result.expect("a request");
    let range = request.topic_data[0].partition_data[0]
        .records
        .bytes(&frame)
        .expect("records");
    assert_eq!(range, records);
    assert!(taken.count == 2 && taken.peak < 500, "{taken:?}");

    let definitions = definitions();
    let fetch = definitions
        .iter()
        .find(|definition| definition.name == "FetchRequest")
        .expect("known");
    let bytes = message_bytes(fetch, 18, &mut Source::new(1));
    let (result, taken) = measure(|| FetchRequest::decode(&mut Reader::new(&bytes), 18));
    let request = result.expect("a request");
    let arrays = 2 + request.topics.len() + request.forgotten_topics_data.len();
    assert!(taken.count <= arrays + 2, "{taken:?}");
}
