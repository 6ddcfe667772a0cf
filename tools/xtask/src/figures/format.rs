//! Formatting of numbers.

use serde_json::Value;

/// Formats a value. The form is empty (text, or a whole number), `word` (the first word of a text,
/// such as a version without its package), `N` (that many decimals), `sN` (that many significant
/// digits), or `us` or `ns` (a time in that unit, converted to the unit that
/// fits, with three significant digits; 0 is `none`: nothing was measured). With `>W` behind it: as
/// in a table for a terminal, without commas and at least `W` characters wide.
pub fn format(value: &Value, form: &str) -> Result<String, String> {
    if let Some((form, width)) = form.split_once('>') {
        let width = width.parse::<usize>().map_err(|_| unknown(width))?;
        let text = format(value, form)?.replace(',', "");
        return Ok(format!("{text:>width$}"));
    }
    if form.is_empty() {
        return match value {
            Value::String(text) => Ok(text.clone()),
            Value::Bool(true) => Ok("yes".into()),
            Value::Bool(false) => Ok("no".into()),
            Value::Number(number) if number.is_u64() => Ok(separated(&number.to_string())),
            other => Err(format!("{other} needs a form, as in {{file:path|1}}")),
        };
    }
    if form == "word" {
        let word = value.as_str().and_then(|text| text.split_whitespace().next());
        return word.map(str::to_owned).ok_or_else(|| format!("{value} has no word"));
    }
    let number = value.as_f64().ok_or_else(|| format!("{value} is no number"))?;
    match form {
        "us" => Ok(time(number)),
        "ns" => Ok(time(number / 1000.0)),
        _ => match form.strip_prefix('s') {
            Some(digits) => Ok(significant(number, digits.parse().map_err(|_| unknown(form))?)),
            None => {
                Ok(separated(&format!("{number:.*}", form.parse().map_err(|_| unknown(form))?)))
            }
        },
    }
}

fn unknown(form: &str) -> String {
    format!("{form:?} is no form of a number")
}

fn time(microseconds: f64) -> String {
    let (number, unit) = match microseconds.abs() {
        0.0 => return "none".to_owned(),
        x if x < 1.0 => (microseconds * 1e3, "ns"),
        x if x < 1e3 => (microseconds, "µs"),
        x if x < 1e6 => (microseconds / 1e3, "ms"),
        _ => (microseconds / 1e6, "s"),
    };
    format!("{} {unit}", significant(number, 3))
}

/// Digits before the decimal point are never rounded away.
fn significant(number: f64, digits: i32) -> String {
    let whole = if number == 0.0 { 1 } else { number.abs().log10().floor() as i32 + 1 };
    let decimals = usize::try_from(digits.saturating_sub(whole)).unwrap_or(0);
    separated(&format!("{number:.decimals$}"))
}

/// With commas between groups of three digits, from 1,000 on.
fn separated(digits: &str) -> String {
    let (sign, rest) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let (whole, decimals) =
        rest.split_once('.').map_or((rest, None), |(whole, decimals)| (whole, Some(decimals)));
    let mut text = String::from(sign);
    for (index, digit) in whole.char_indices() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if let Some(decimals) = decimals {
        text.push('.');
        text.push_str(decimals);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_have_the_form_that_is_asked_for() {
        for (value, form, text) in [
            (json!(20212.6), "0", "20,213"),
            (json!(1234567), "", "1,234,567"),
            (json!(59.71), "1", "59.7"),
            (json!(0.953), "s2", "0.95"),
            (json!(0.0123), "s2", "0.012"),
            (json!(1067.7), "s3", "1,068"),
            (json!(29.04), "s3", "29.0"),
            (json!(336.639), "us", "337 µs"),
            (json!(1950.2), "us", "1.95 ms"),
            (json!(0.5), "us", "500 ns"),
            (json!(6.96), "ns", "6.96 ns"),
            (json!(2.5e6), "us", "2.50 s"),
            (json!(0.0), "us", "none"),
            (json!("kcuc"), "", "kcuc"),
            (json!(false), "", "no"),
            (json!("10.0.2 (Debian 1:10.0.2+ds-2)"), "word", "10.0.2"),
            (json!(-1234.5), "1", "-1,234.5"),
            (json!(3200), "0>6", "  3200"),
            (json!(3200), ">2", "3200"),
            (json!(1950.2), "us>8", " 1.95 ms"),
        ] {
            assert_eq!(format(&value, form).as_deref(), Ok(text), "{value} {form}");
        }
        assert!(format(&json!(1.5), "").is_err());
        assert!(format(&json!("x"), "1").is_err());
        assert!(format(&json!(""), "word").is_err());
        assert!(format(&json!(10), "word").is_err());
        assert!(format(&json!(1), "sx").is_err());
        assert!(format(&json!(null), "").is_err());
        assert!(format(&json!(1), "0>x").is_err());
    }
}
