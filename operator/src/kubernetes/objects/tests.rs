//! Golden objects (manifest in, YAML out), and what live pods say about themselves.

use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde::Serialize;
use serde_json::json;
use taffrail_crds::ClusterSpec;

use super::*;
use crate::health::Health;
use crate::manifest;
use crate::validate::Valid;
use crate::world;

const UID: &str = "6a4bd9a6-8e0f-4c0e-9d0c-0d7a3f1b2c4d";

/// A Cluster with nothing but what it must have.
pub(in crate::kubernetes) const MINIMAL: &str = "\
apiVersion: taffrail.io/v1alpha1
kind: Cluster
metadata: {name: demo, namespace: ns}
spec:
  brokers: 1
  storage: {volumes: [{name: data-0, size: 10Gi}]}
";

/// A Cluster with everything.
pub(in crate::kubernetes) const EVERYTHING: &str = "\
apiVersion: taffrail.io/v1alpha1
kind: Cluster
metadata: {name: demo, namespace: ns}
spec:
  brokers: 3
  clusterId: vPeOCWypqUOSepEvx0cbog
  storage:
    volumes:
      - {name: data-0, size: 10Gi, storageClassName: fast}
      - {name: data-1, size: 1Ti}
    deletionPolicy: Delete
  listeners:
    - {name: internal, port: 9092}
    - {name: metrics, port: 9095}
    - {name: outside, port: 9094, type: NodePort, allowUnauthenticated: true}
    - {name: far, port: 9096, type: LoadBalancer, allowUnauthenticated: true}
  rack: {topologyKey: topology.kubernetes.io/zone}
  config: {min.insync.replicas: 2, log.retention.ms: 1000}
  pod:
    image: example.org/taffrail:1
    resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {memory: 2Gi}}
    affinity:
      podAntiAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {taffrail.io/cluster: demo}}}
    nodeSelector: {disk: nvme}
    tolerations: [{key: dedicated, value: taffrail, effect: NoSchedule}]
    topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}
    priorityClassName: high
    imagePullSecrets: [{name: pull}]
    securityContext: {fsGroup: 20000}
    env: [{name: RUST_BACKTRACE, value: '1'}, {name: TAFFRAIL_NODE_ID, value: '7'}]
    labels: {team: data, taffrail.io/cluster: other}
    annotations: {example.org/note: hello, taffrail.io/template-hash: mine}
    terminationGracePeriodSeconds: 60
";

/// A manifest, judged, with what else a blueprint borrows.
pub(in crate::kubernetes) struct Given {
    valid: Valid,
    spec: ClusterSpec,
    config: BTreeMap<String, String>,
    voters: Vec<i32>,
}

impl Given {
    pub(in crate::kubernetes) fn new(text: &str) -> Self {
        let valid = world::valid(text);
        let file = manifest::parse(Path::new("test.yaml"), text).expect("YAML");
        let objects = manifest::objects(&file).unwrap_or_else(|error| panic!("{error}"));
        let spec = objects.clusters[0].1.spec.clone();
        Self {
            config: valid.cluster.config.clone().expect("accepted"),
            voters: crate::properties::voters(spec.brokers),
            valid,
            spec,
        }
    }

    pub(in crate::kubernetes) fn blueprint(&self) -> Blueprint<'_> {
        Blueprint {
            cluster: &self.valid.cluster,
            spec: &self.spec,
            uid: UID,
            config: &self.config,
            founders: &self.voters,
            voters: &self.voters,
            replicas: self.spec.brokers,
            image: "localhost/taffrail:dev",
            image_pull_policy: Some("IfNotPresent"),
        }
    }

    fn objects(&self) -> Objects {
        objects(&self.blueprint())
    }
}

/// Compares with `golden/<name>.yaml`; `UPDATE_GOLDEN=1` writes it instead.
fn check(name: &str, text: &str) {
    let given = Given::new(text);
    let objects = given.objects();
    let mut got = yaml(&objects.service_account);
    got += &yaml(&objects.config_map);
    for service in &objects.services {
        got += &yaml(service);
    }
    got += &yaml(&objects.disruption_budget);
    got += &yaml(&objects.stateful_set);
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/kubernetes/objects/golden")
        .join(format!("{name}.yaml"));
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &got).expect("golden file is written");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(got, expected, "{}", path.display());
}

fn yaml(object: &impl Serialize) -> String {
    // By way of JSON, whose objects are sorted.
    let value = serde_json::to_value(object).expect("JSON");
    format!("---\n{}", serde_yaml::to_string(&value).expect("YAML"))
}

/// The pod that a StatefulSet's controller would make, with what API servers add.
fn pod(objects: &Objects, broker: i32) -> Pod {
    let spec = &objects.stateful_set.spec;
    let mut pod = serde_json::to_value(&spec.template).expect("JSON");
    pod["metadata"]["name"] = json!(format!("demo-broker-{broker}"));
    pod["spec"]["dnsPolicy"] = json!("ClusterFirst");
    pod["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    pod["spec"]["containers"][0]["terminationMessagePath"] = json!("/dev/termination-log");
    let volumes = pod["spec"]["volumes"].as_array_mut().expect("volumes");
    for claim in spec.volume_claim_templates.iter().flatten() {
        let name = claim.metadata.name.as_deref().expect("a name");
        let claim_name = format!("{name}-demo-broker-{broker}");
        volumes.push(json!({"name": name, "persistentVolumeClaim": {"claimName": claim_name}}));
    }
    serde_json::from_value(pod).expect("a pod")
}

fn config_maps(objects: &Objects) -> BTreeMap<String, ConfigMap> {
    let name = objects.config_map.metadata.name.clone().expect("a name");
    BTreeMap::from([(name, objects.config_map.clone())])
}

#[test]
fn minimal_cluster() {
    check("minimal", MINIMAL);
}

#[test]
fn cluster_with_everything() {
    check("everything", EVERYTHING);
}

#[test]
fn what_would_break_the_operators_work_is_told() {
    let given = Given::new(EVERYTHING);
    assert_eq!(
        ignored(&given.blueprint()),
        [
            "spec.pod.labels: taffrail.io/cluster is set by the operator; leave it out",
            "spec.pod.annotations: taffrail.io/template-hash is the operator's own; leave it out",
            "spec.pod.env: TAFFRAIL_NODE_ID is set by the operator; leave it out",
        ]
    );
    assert!(ignored(&Given::new(MINIMAL).blueprint()).is_empty());
}

#[test]
fn listeners_that_want_one_service_are_told() {
    let clash = |listeners: &str| {
        let text =
            format!("{MINIMAL}  listeners: [{listeners}]\n").replace("brokers: 1", "brokers: 2");
        name_clash(&Given::new(&text).blueprint()).unwrap_or_default()
    };
    let outside = |name: &str, port: i32| {
        format!("{{name: {name}, port: {port}, type: NodePort, allowUnauthenticated: true}}")
    };
    assert_eq!(clash(&outside("a", 9094)), "");
    assert!(clash(&outside("brokers", 9094)).contains("the brokers' own Service"));
    assert!(clash(&outside("bootstrap", 9094)).contains("rename the listener"));
    let two = format!("{}, {}", outside("a", 9094), outside("a-1", 9095));
    assert!(clash(&two).contains("Service demo-a-1"));
}

/// Why a pod of one manifest is restarted under another, beside configuration and volumes.
fn outdated(before: &str, after: &str) -> Vec<String> {
    let old = Given::new(before).objects();
    let wanted = Given::new(after).objects();
    let observed = observed_brokers(
        Some(&old.stateful_set),
        &[pod(&old, 0)],
        &config_maps(&old),
        &BTreeMap::new(),
        &wanted,
    );
    observed[&0].outdated.clone()
}

#[test]
fn a_pod_is_outdated_when_its_template_changes() {
    let with = |pod: &str| format!("{MINIMAL}  pod: {{{pod}}}\n");
    let check = |before: &str, after: &str, expected: &[&str]| {
        assert_eq!(outdated(before, after), expected);
    };
    check(MINIMAL, MINIMAL, &[]);
    check(EVERYTHING, EVERYTHING, &[]);
    check(
        MINIMAL,
        &with("image: 'a:2'"),
        &["the image changes from localhost/taffrail:dev to a:2"],
    );
    check(
        MINIMAL,
        &with("resources: {requests: {cpu: 1}}, nodeSelector: {a: b}"),
        &["the resources change", "the scheduling changes"],
    );
    check(
        MINIMAL,
        &with("labels: {a: b}"),
        &["the labels or annotations change"],
    );
    // Configuration and volumes are compared by the plan.
    check(
        MINIMAL,
        &format!("{MINIMAL}  config: {{num.partitions: 3}}\n"),
        &[],
    );
    check(
        MINIMAL,
        &MINIMAL.replace("10Gi}", "10Gi}, {name: data-1, size: 1Gi}"),
        &[],
    );
    check(
        MINIMAL,
        &format!("{MINIMAL}  listeners: [{{name: internal, port: 9091}}]\n"),
        &[
            "listeners changes",
            "the environment changes",
            "the listeners change",
        ],
    );
}

#[test]
fn order_of_volumes_changes_nothing() {
    let with = |volumes: &str| MINIMAL.replace("{name: data-0, size: 10Gi}", volumes);
    let (a, b) = ("{name: a, size: 1Gi}", "{name: b, size: 2Gi}");
    let before = Given::new(&with(&format!("{a}, {b}"))).objects();
    let mut after = Given::new(&with(&format!("{b}, {a}")));
    assert_ne!(after.objects(), before);
    in_live_order(&mut after.valid.cluster.volumes, Some(&before.stateful_set));
    assert_eq!(after.objects(), before);
}

#[test]
fn pods_tell_what_they_were_started_with() {
    let text = MINIMAL.replace("brokers: 1", "brokers: 2");
    let old = Given::new(&format!("{text}  config: {{num.partitions: 3}}\n")).objects();
    let wanted = Given::new(&text.replace("10Gi}", "10Gi}, {name: data-1, size: 1Gi}")).objects();
    let ready = Health {
        started: true,
        ready: true,
        safe_to_stop: Some(true),
    };
    let health = BTreeMap::from([(0, ready)]);
    let pods = [pod(&old, 0)];
    let observe = |config_maps: &BTreeMap<String, ConfigMap>| {
        observed_brokers(
            Some(&old.stateful_set),
            &pods,
            config_maps,
            &health,
            &wanted,
        )
    };
    let brokers = observe(&config_maps(&old));
    assert_eq!(brokers[&0].config["num.partitions"], "3");
    assert_eq!(brokers[&0].volumes, ["data-0"]);
    assert!(brokers[&0].ready && brokers[&0].outdated.is_empty());
    // Its pod is about to be made, from the wanted template.
    assert!(!brokers[&1].config.contains_key("num.partitions"));
    assert!(!brokers[&1].ready && brokers[&1].outdated.is_empty());
    assert_eq!(
        observe(&BTreeMap::new())[&0].outdated,
        ["the configuration that it was started with is gone"]
    );
}

#[test]
fn broker_is_ready_if_both_say_so_and_down_if_neither_does() {
    let objects = Given::new(MINIMAL).objects();
    for (kubelet, answers, leaves, ready, down) in [
        ("True", true, false, true, false),
        ("False", true, false, false, false),
        ("True", false, false, false, false),
        ("False", false, false, false, true),
        ("True", true, true, false, true),
    ] {
        let mut pod = serde_json::to_value(pod(&objects, 0)).expect("JSON");
        pod["status"]["conditions"][0]["status"] = json!(kubelet);
        if leaves {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let health = Health {
            ready: answers,
            ..Health::default()
        };
        let brokers = observed_brokers(
            Some(&objects.stateful_set),
            &[serde_json::from_value(pod).expect("a pod")],
            &config_maps(&objects),
            &BTreeMap::from([(0, health)]),
            &objects,
        );
        assert_eq!(
            (brokers[&0].ready, brokers[&0].down),
            (ready, down),
            "{kubelet} {answers} {leaves}"
        );
    }
}
