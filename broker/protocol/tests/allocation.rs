//! How much memory the decoders take: never more than a small multiple of the bytes that arrived.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use support::{Source, codecs, definitions, message_bytes};
use taffrail_protocol::Message;
use taffrail_protocol::messages::{FetchRequest, MetadataRequest, ProduceRequest};
use taffrail_protocol::records::{Compression, compress, decompress};
use taffrail_protocol::{DecodeError, Reader};

struct Counting;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

fn note(taken: usize, given_back: usize) {
    LIVE.with(|live| {
        live.set((live.get() + taken).saturating_sub(given_back));
        PEAK.with(|peak| peak.set(peak.get().max(live.get())));
    });
    COUNT.with(|count| count.set(count.get() + usize::from(taken > 0)));
}

// SAFETY: every call goes to the system's allocator unchanged; the counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size, layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` gives, the most bytes that it held at once, and how many times it allocated.
fn measure<T>(work: impl FnOnce() -> T) -> (T, usize, usize) {
    LIVE.with(|live| live.set(0));
    PEAK.with(|peak| peak.set(0));
    COUNT.with(|count| count.set(0));
    let result = work();
    (result, PEAK.with(Cell::get), COUNT.with(Cell::get))
}

/// What every decoder is held to.
fn allowed(frame: usize) -> usize {
    16 * frame + 64 * 1024
}

/// The frame that made another codec ask for 206 GB.
#[test]
fn twelve_bytes_that_claim_two_thousand_million_topics() {
    let frame = [0xff, 0xff, 0, 1, 0, 0, 0x75, 0x30, 0x7f, 0xff, 0xff, 0xff];
    let (result, peak, _) = measure(|| ProduceRequest::decode(&mut Reader::new(&frame), 3));
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
    assert!(peak < 1000, "{peak}");
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
    let (result, peak, _) =
        measure(|| MetadataRequest::decode(&mut Reader::new(&frame), 12).is_ok());
    assert!(result && peak < 3 * frame.len(), "{peak}");
    // A byte for each element, 64 in memory: beyond.
    let swelling = |r: &mut Reader<'_>| r.array(true, 1, |r| r.i8().map(|_| [0u64; 8]));
    let mut frame = vec![0xc1, 0x84, 0x3d];
    frame.resize(1_000_003, 0);
    let (result, peak, _) = measure(|| swelling(&mut Reader::new(&frame)).map(|array| array.len()));
    assert_eq!(
        result,
        Err(DecodeError::TooMuchMemory { frame: frame.len() })
    );
    assert!(peak < 1000, "{peak}");
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
                    let (_, peak, _) = measure(|| (codec.decodes)(&claiming, version));
                    assert!(
                        peak <= allowed(claiming.len()),
                        "{} {version}: {peak}",
                        codec.name
                    );
                }
            }
            let length = source.below(200) as usize;
            let random = source.bytes(length);
            let (_, peak, _) = measure(|| (codec.decodes)(&random, version));
            assert!(
                peak <= allowed(random.len()),
                "{} {version}: {peak}",
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
        let (result, peak, _) = measure(|| decompress(codec, &compressed, limit));
        assert!(result.is_err());
        assert!(peak <= 2 * limit + WORKING_MEMORY, "{codec:?}: {peak}");
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
    let (result, peak, count) = measure(|| ProduceRequest::decode(&mut Reader::new(&frame), 13));
    let request = result.expect("a request");
    let range = request.topic_data[0].partition_data[0]
        .records
        .bytes(&frame)
        .expect("records");
    assert_eq!(range, records);
    assert!(
        count == 2 && peak < 500,
        "{count} allocations, {peak} bytes"
    );

    let definitions = definitions();
    let fetch = definitions
        .iter()
        .find(|definition| definition.name == "FetchRequest")
        .expect("known");
    let bytes = message_bytes(fetch, 18, &mut Source::new(1));
    let (result, _, count) = measure(|| FetchRequest::decode(&mut Reader::new(&bytes), 18));
    let request = result.expect("a request");
    let arrays = 2 + request.topics.len() + request.forgotten_topics_data.len();
    assert!(count <= arrays + 2, "{count} allocations");
}
