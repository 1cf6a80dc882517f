//! The log on a real file system: what is recovered, cut and refused.

use taffrail_core::raft::EntryType;
use taffrail_log::RealDisk;

use super::*;

fn entry(index: u64, term: u64) -> Entry {
    let data = format!("entry {index}").into_bytes();
    Entry {
        entry_type: EntryType::Normal,
        term,
        index,
        data,
        context: Vec::new(),
    }
}

fn state(term: u64, commit: u64) -> HardState {
    HardState {
        term,
        vote: Some(BrokerId(0)),
        commit,
    }
}

fn write(log: &mut MetadataLog<RealDisk>, hard_state: Option<HardState>, entries: &[Entry]) {
    let persist = Persist {
        snapshot: None,
        entries: entries.to_vec(),
        hard_state,
        must_sync: true,
    };
    log.persist(&persist).unwrap();
}

struct Folder {
    _root: tempfile::TempDir,
    path: PathBuf,
}

impl Folder {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(FOLDER);
        Self { _root: root, path }
    }

    fn open(&self) -> Result<(MetadataLog<RealDisk>, Persisted), MetadataLogError> {
        MetadataLog::open(&RealDisk, &self.path, 3, &[BrokerId(3)])
    }
}

#[test]
fn what_was_written_is_recovered() {
    let folder = Folder::new();
    let (mut log, persisted) = folder.open().unwrap();
    assert_eq!(persisted, Persisted::default());
    write(&mut log, Some(state(1, 0)), &[entry(1, 1), entry(2, 1)]);
    write(&mut log, None, &[entry(2, 2)]);
    write(&mut log, Some(state(2, 2)), &[]);
    drop(log);
    let (mut log, persisted) = folder.open().unwrap();
    assert_eq!(persisted.hard_state, state(2, 2));
    assert_eq!(persisted.entries, vec![entry(1, 1), entry(2, 2)]);
    write(&mut log, None, &[entry(3, 2)]);
    drop(log);
    assert_eq!(folder.open().unwrap().1.entries.len(), 3);
}

#[test]
fn commit_index_alone_waits_for_the_next_write() {
    let folder = Folder::new();
    let (mut log, _) = folder.open().unwrap();
    write(&mut log, Some(state(1, 0)), &[entry(1, 1)]);
    let before = log.position;
    let lazy = Persist {
        hard_state: Some(state(1, 1)),
        ..Persist::default()
    };
    log.persist(&lazy).unwrap();
    assert_eq!(log.position, before);
    write(&mut log, None, &[entry(2, 1)]);
    drop(log);
    assert_eq!(folder.open().unwrap().1.hard_state, state(1, 1));
}

#[test]
fn snapshot_replaces_what_is_before_it() {
    let folder = Folder::new();
    let (mut log, _) = folder.open().unwrap();
    write(
        &mut log,
        Some(state(1, 3)),
        &[entry(1, 1), entry(2, 1), entry(3, 1)],
    );
    let snapshot = Snapshot {
        index: 2,
        term: 1,
        voters: vec![BrokerId(0)],
        learners: vec![],
        data: b"image".to_vec(),
    };
    log.compact(&snapshot).unwrap();
    write(&mut log, None, &[entry(4, 1)]);
    drop(log);
    std::fs::write(folder.path.join("00000000000000000009.snapshot"), b"orphan").unwrap();
    std::fs::write(folder.path.join("00000000000000000009.log.tmp"), b"orphan").unwrap();
    let (_, persisted) = folder.open().unwrap();
    assert_eq!(persisted.snapshot, Some(snapshot));
    assert_eq!(persisted.hard_state, state(1, 3));
    assert_eq!(persisted.entries, vec![entry(3, 1), entry(4, 1)]);
    assert_eq!(std::fs::read_dir(&folder.path).unwrap().count(), 2);
}

#[test]
fn torn_tail_is_cut_and_written_over() {
    let folder = Folder::new();
    let (mut log, _) = folder.open().unwrap();
    write(&mut log, None, &[entry(1, 1)]);
    write(&mut log, None, &[entry(2, 1)]);
    let path = log.path.clone();
    drop(log);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - frame::MARK_SIZE - 3]).unwrap();
    let (mut log, persisted) = folder.open().unwrap();
    assert_eq!(persisted.entries, vec![entry(1, 1)]);
    write(&mut log, None, &[entry(2, 2)]);
    drop(log);
    assert_eq!(
        folder.open().unwrap().1.entries,
        vec![entry(1, 1), entry(2, 2)]
    );
}

fn refusal(folder: &Folder) -> String {
    folder.open().err().map(|error| error.to_string()).unwrap()
}

#[test]
fn damage_is_refused_with_what_to_do() {
    let folder = Folder::new();
    let (mut log, _) = folder.open().unwrap();
    write(&mut log, None, &[entry(1, 1)]);
    let second = log.position as usize;
    write(&mut log, None, &[entry(2, 1)]);
    let path = log.path.clone();
    drop(log);
    let whole = std::fs::read(&path).unwrap();
    for damaged in [second - 30, second, second + 25] {
        let mut bytes = whole.clone();
        bytes[damaged] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let error = refusal(&folder);
        assert!(
            error.contains("cannot be used") && error.contains("restored from theirs"),
            "{error}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "nothing is cut");
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::write(
        folder.path.join("00000000000000000009.snapshot"),
        b"snapshot without a log",
    )
    .unwrap();
    assert!(folder.open().is_err());
}

#[test]
fn frame_whose_fsync_was_not_awaited_is_made_durable_and_marked_at_the_next_start() {
    let folder = Folder::new();
    let (mut log, _) = folder.open().unwrap();
    write(&mut log, None, &[entry(1, 1)]);
    let path = log.path.clone();
    drop(log);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - frame::MARK_SIZE]).unwrap();
    drop(folder.open().unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), whole);
}

#[test]
fn corrupt_or_missing_snapshot_is_refused_with_what_to_do() {
    let folder = Folder::new();
    let (mut log, _) = folder.open().unwrap();
    write(&mut log, Some(state(1, 1)), &[entry(1, 1)]);
    log.compact(&Snapshot {
        index: 1,
        term: 1,
        voters: vec![BrokerId(0)],
        learners: vec![],
        data: b"image".to_vec(),
    })
    .unwrap();
    drop(log);
    let path = snapshot_path(&folder.path, 1);
    let whole = std::fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for bytes in [&flipped[..], &whole[..whole.len() - 1], b""] {
        std::fs::write(&path, bytes).unwrap();
        let error = refusal(&folder);
        assert!(
            error.contains(".snapshot cannot be used") && error.contains("restored from theirs"),
            "{error}"
        );
    }
    std::fs::remove_file(&path).unwrap();
    let error = refusal(&folder);
    assert!(
        error.contains("it is missing") && error.contains("restored from theirs"),
        "{error}"
    );
    std::fs::write(&path, &whole).unwrap();
    assert!(folder.open().is_ok());
}

#[test]
fn folder_that_cannot_be_listed_is_not_taken_for_an_empty_one() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join(FOLDER);
    assert!(!MetadataLog::exists(&RealDisk, &path).unwrap());
    std::fs::write(&path, b"a file where the folder should be").unwrap();
    assert!(MetadataLog::exists(&RealDisk, &path).is_err());
    assert!(MetadataLog::open(&RealDisk, &path, 3, &[]).is_err());
    assert_eq!(
        std::fs::read(&path).unwrap(),
        b"a file where the folder should be"
    );
}

#[test]
fn log_of_another_broker_is_refused() {
    let folder = Folder::new();
    drop(folder.open().unwrap());
    let error = MetadataLog::open(&RealDisk, &folder.path, 4, &[])
        .err()
        .unwrap();
    assert!(matches!(
        error,
        MetadataLogError::OtherBroker {
            found: 3,
            expected: 4,
            ..
        }
    ));
}

#[test]
fn founders_are_those_of_the_first_write() {
    let folder = Folder::new();
    let ids = |ids: &[i32]| ids.iter().copied().map(BrokerId).collect::<Vec<_>>();
    let open =
        |founders: &[i32]| MetadataLog::open(&RealDisk, &folder.path, 3, &ids(founders)).unwrap();
    drop(open(&[3]));
    let (mut log, _) = open(&[3, 4]);
    assert_eq!(
        log.founders(),
        ids(&[3, 4]),
        "an empty log has nobody's word yet"
    );
    write(&mut log, None, &[entry(1, 1)]);
    drop(log);
    assert_eq!(open(&[3, 4, 5]).0.founders(), ids(&[3, 4]));
}
