//! Sizes as Kubernetes writes them, read for comparing: `1Gi`, `1024Mi` and `1073741824` are the same.

/// Multipliers; the empty one is last so that it does not hide the others.
const SUFFIXES: &[(&str, u128)] = &[
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
    ("", 1),
];

/// Bytes, a part of one counted as one, as Kubernetes rounds; none if the text is no size. The largest suffix takes 60
/// bits, which leaves 68 for the digits.
pub(super) fn bytes(text: &str) -> Option<u128> {
    let (digits, multiplier) = SUFFIXES
        .iter()
        .find_map(|(suffix, multiplier)| Some((text.strip_suffix(suffix)?, *multiplier)))?;
    if let Some((mantissa, exponent)) = digits.split_once(['e', 'E']) {
        let exponent: u32 = exponent.parse().ok()?;
        return decimal(mantissa, 10_u128.checked_pow(exponent)?);
    }
    if let Some(thousandths) = digits.strip_suffix('m') {
        return Some(decimal(thousandths, 1)?.div_ceil(1000));
    }
    decimal(digits, multiplier)
}

fn decimal(digits: &str, multiplier: u128) -> Option<u128> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let number: u128 = format!("{whole}{fraction}").parse().ok()?;
    Some(number.checked_mul(multiplier)?.div_ceil(scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, expected) in [
            ("1", Some(1)),
            ("1Ki", Some(1024)),
            ("1k", Some(1000)),
            ("1.5Gi", Some(1_610_612_736)),
            ("1536Mi", Some(1_610_612_736)),
            ("0.1Ki", Some(103)),
            ("2e3", Some(2000)),
            ("1500m", Some(2)),
            ("8Ei", Some(1 << 63)),
            ("1E", Some(1_000_000_000_000_000_000)),
            ("", None),
            ("Gi", None),
            ("1.Gi.", None),
            ("-1", None),
            ("1e99", None),
            ("999999999999999999999999999999Ei", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }
}
