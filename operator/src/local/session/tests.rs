//! A run whose surroundings fail it: the manifest goes away, the program cannot be started.

use std::fs;

use super::super::supervisor::Event;
use super::*;
use crate::world;

/// A run over an empty folder with a manifest of one broker, before anything is started.
fn session(folder: &Path, program: &str) -> Session {
    let file = folder.join("manifest.yaml");
    fs::write(&file, world::cluster("  brokers: 1")).expect("written");
    let objects = manifest::objects(&manifest::read(&file).expect("YAML")).expect("admitted");
    let data = DataFolder::open(&folder.join("data")).expect("free");
    let (base_port, ports) = (20_000..30_000)
        .step_by(1000)
        .filter_map(|base| Some((base, Ports::new(base, 1).ok()?)))
        .find(|(_, ports)| ports.check_free(0).is_ok())
        .expect("ports");
    let setup = Setup {
        file,
        binary: folder.join(program),
        ports,
        base_port,
        metrics: Metrics::new().expect("metrics"),
    };
    let key = ObjectKey::new(None, Some("demo"));
    Session::new(
        setup,
        data,
        Memory::new(key, "id".to_owned(), vec![0]),
        &objects,
    )
    .expect("valid")
}

#[test]
fn manifest_that_goes_away_is_told_until_it_is_back() {
    let folder = tempfile::tempdir().expect("folder");
    let mut session = session(folder.path(), "none");
    let file = session.setup.file.clone();
    let text = fs::read_to_string(&file).expect("there");
    fs::remove_file(&file).expect("there");
    let error = fs::read(&file).expect_err("gone");
    let told = session.lost_file(&error);
    assert_eq!(
        told,
        format!(
            "{} is gone; the cluster runs on as the manifest said last, and takes changes again once it is back.",
            file.display()
        )
    );
    assert_eq!(session.report().file_error, Some(told));
    assert_eq!(session.brokers(), [0]);
    fs::write(&file, text).expect("written");
    session.reload().expect("as before");
    assert_eq!(session.report().file_error, None);
}

#[test]
fn broker_that_cannot_be_started_is_not_forgotten() {
    let folder = tempfile::tempdir().expect("folder");
    let mut session = session(folder.path(), "none");
    let began = Instant::now();
    session.observed(BTreeMap::new(), ObservedKafka::Absent, began);
    let failed = &session.failures[&None];
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(
        failed[0].message.contains("cannot start broker 0"),
        "{failed:?}"
    );
    // It is up to the supervisor from here on.
    assert_eq!(session.supervisor.state(0), "restarting");
    let nobody = ObservedKafka::Unreachable { why: String::new() };
    session.observed(BTreeMap::new(), nobody, began);
    assert!(session.failures.is_empty() && session.plan.steps.is_empty());
    let events = session.supervisor.poll(began + Duration::from_secs(1));
    assert!(
        matches!(events[..], [Event::NotStarted { broker: 0, .. }]),
        "{events:?}"
    );
}
