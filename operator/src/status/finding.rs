//! One condition of a status, from what is refused or observed, in words of a bounded length.

use k8s_openapi::jiff::Timestamp;
use taffrail_crds::{Condition, ConditionStatus, set_condition};

use crate::refusal::{Concern, Reason, Refusal};

/// Messages that are joined in one condition. With 512 characters each, as long as any is read by people, a Topic's
/// four conditions stay within 16 KiB.
const JOINED_MAX: usize = 5;
const MESSAGE_CHARS_MAX: usize = 512;

/// What is found of one concern: a condition before it has a time.
pub(super) struct Finding {
    pub(super) type_: &'static str,
    pub(super) status: ConditionStatus,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Finding {
    pub(super) fn holds(
        type_: &'static str,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            type_,
            status: ConditionStatus::True,
            reason,
            message: message.into(),
        }
    }

    pub(super) fn fails(type_: &'static str, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            type_,
            status: ConditionStatus::False,
            reason: reason.word(),
            message: message.into(),
        }
    }

    pub(super) fn unknown(type_: &'static str, message: impl Into<String>) -> Self {
        Self {
            type_,
            status: ConditionStatus::Unknown,
            reason: "NotObserved",
            message: message.into(),
        }
    }

    pub(super) fn set(
        self,
        conditions: &mut Vec<Condition>,
        generation: Option<i64>,
        now: Timestamp,
    ) {
        set_condition(
            conditions,
            self.type_,
            self.status,
            self.reason,
            self.message,
            generation,
            now,
        );
    }
}

/// The condition of one concern: the refusals that it has, those that need someone first.
pub(super) fn concern(concern: Concern, refused: &[Refusal], otherwise: &str) -> Finding {
    let mut of_concern: Vec<&Refusal> = refused
        .iter()
        .filter(|refusal| refusal.concern == concern)
        .collect();
    of_concern.sort_by_key(|refusal| refusal.reason.is_transient());
    match of_concern.first() {
        None => Finding::holds(concern.condition(), "AsSpecified", otherwise),
        Some(first) => {
            let messages = of_concern.iter().map(|refusal| refusal.message.as_str());
            Finding::fails(concern.condition(), first.reason, joined(messages))
        }
    }
}

/// Messages in one, cut to what people read.
fn joined<'a>(messages: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = messages.len().saturating_sub(JOINED_MAX);
    let mut shown: Vec<String> = messages.take(JOINED_MAX).map(cut).collect();
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown.join("; ")
}

/// One message, cut to what people read.
pub(super) fn cut(message: &str) -> String {
    match message.char_indices().nth(MESSAGE_CHARS_MAX) {
        None => message.to_owned(),
        Some((end, _)) => format!("{}…", &message[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_to_what_is_read() {
        let long = "ä".repeat(MESSAGE_CHARS_MAX + 1);
        let text = joined([long.as_str(); 7].into_iter());
        assert!(text.ends_with("…; and 2 more"), "{text}");
        assert_eq!(text.matches('…').count(), JOINED_MAX);
        assert_eq!(joined(["a", "b"].into_iter()), "a; b");
    }
}
