//! Formats figures with three significant digits and a unit.

/// A duration given in microseconds: `850 ns`, `12.3 µs`, `1.43 ms`, `2.5 s`.
#[must_use]
pub fn duration_text(microseconds: f64) -> String {
    let (value, unit) = match microseconds {
        us if us <= 0.0 => return "0 µs".into(),
        us if us < 0.9995 => (us * 1e3, "ns"),
        us if us < 999.5 => (us, "µs"),
        us if us < 999_500.0 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// A number with three significant digits, without exponent or trailing zeros: `0.05`,
/// `12.3`, `640`, `16665`.
#[must_use]
pub fn three_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = usize::try_from(2 - magnitude).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// A percentile of `fraction`: `50`, `99`, `99.9`, without the rounding noise of `1 - 10⁻ⁿ`.
#[must_use]
pub fn percent_text(fraction: f64) -> String {
    let text = format!("{:.4}", fraction * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_choose_their_unit() {
        let texts = [
            (0.0, "0 µs"),
            (0.85, "850 ns"),
            (0.9996, "1 µs"),
            (12.345, "12.3 µs"),
            (999.6, "1 ms"),
        ];
        let more = [(1430.0, "1.43 ms"), (100_000.0, "100 ms"), (2.5e6, "2.5 s"), (60e6, "60 s")];
        for (microseconds, text) in texts.into_iter().chain(more) {
            assert_eq!(duration_text(microseconds), text, "{microseconds}");
        }
    }

    #[test]
    fn numbers_keep_three_digits() {
        for (value, text) in
            [(0.0, "0"), (0.05, "0.05"), (12.34, "12.3"), (640.2, "640"), (16665.4, "16665")]
        {
            assert_eq!(three_digits(value), text);
        }
        assert_eq!(percent_text(1.0 - 1e-3), "99.9");
        assert_eq!(percent_text(0.5), "50");
    }
}
