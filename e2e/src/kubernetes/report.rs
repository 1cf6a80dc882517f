//! What explains a failure: conditions, events, and the last words of operator and brokers.

use std::fmt::Write as _;

use crate::kubernetes::command::{attempt, kubectl};
use crate::kubernetes::namespace::Namespace;
use crate::kubernetes::operator;

/// Everything worth reading about a namespace.
pub fn of(namespace: &Namespace) -> String {
    let mut report = String::new();
    let name = namespace.name();
    let sections: &[&[&str]] = &[
        &[
            "-n",
            name,
            "get",
            "clusters,topics,statefulsets,pods,services,pvc",
            "-o",
            "wide",
        ],
        &["-n", name, "describe", "clusters,topics"],
        &[
            "-n",
            name,
            "get",
            "events",
            "--sort-by=.metadata.creationTimestamp",
        ],
        &[
            "-n",
            name,
            "logs",
            "-l",
            "app.kubernetes.io/name=taffrail-broker",
            "--prefix",
            "--tail=40",
        ],
        &["get", "nodes", "-o", "wide"],
        &["-n", operator::NAMESPACE, "get", "pods", "-o", "wide"],
        &[
            "-n",
            operator::NAMESPACE,
            "logs",
            "-l",
            operator::SELECTOR,
            "--prefix",
            "--tail=150",
        ],
    ];
    for section in sections {
        let _ = writeln!(report, "---- kubectl {} ----", section.join(" "));
        match attempt(&mut kubectl(section), &[]) {
            Ok(output) => {
                report.push_str(&String::from_utf8_lossy(&output.stdout));
                report.push_str(&String::from_utf8_lossy(&output.stderr));
            }
            Err(error) => {
                let _ = writeln!(report, "{error:#}");
            }
        }
    }
    report
}
