//! Dates in the two forms that senders sign, read strictly: one spelling for each field, and no day that the calendar
//! does not have.

use time::{Date, Month, OffsetDateTime, Time, Weekday};

/// `2021-07-25T10:00:00.634234626Z` or with an offset, as Unix seconds, rounded down.
pub(super) fn rfc3339(text: &[u8]) -> Option<i64> {
    let (date_time, rest) = text.split_at_checked(19)?;
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, b'T', time @ ..] = date_time else { return None };
    let month = Month::try_from(u8::try_from(number(&[*m1, *m2])?).ok()?).ok()?;
    let date = date(number(&[*y1, *y2, *y3, *y4])?, month, number(&[*d1, *d2])?)?;
    let local = unix(date, time)?;
    local.checked_sub(offset(fraction(rest)?)?)
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, as Unix seconds.
pub(super) fn http(text: &[u8]) -> Option<i64> {
    let [w1, w2, w3, b',', b' ', d1, d2, b' ', m1, m2, m3, b' ', y1, y2, y3, y4, b' ', rest @ ..] = text else {
        return None;
    };
    let month = MONTHS.iter().position(|name| name.as_bytes() == [*m1, *m2, *m3])?;
    let month = Month::try_from(u8::try_from(month + 1).ok()?).ok()?;
    let date = date(number(&[*y1, *y2, *y3, *y4])?, month, number(&[*d1, *d2])?)?;
    if weekday(date.weekday()).as_bytes() != [*w1, *w2, *w3] {
        return None;
    }
    unix(date, rest.strip_suffix(b" GMT")?)
}

/// Nothing for moments behind the year 9999.
pub(super) fn write_rfc3339(seconds: i64) -> String {
    let Ok(moment) = OffsetDateTime::from_unix_timestamp(seconds) else { return String::new() };
    let (date, time) = (moment.date(), moment.time());
    let (hour, minute, second) = time.as_hms();
    format!("{:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", date.year(), u8::from(date.month()), date.day())
}

/// Nothing for moments behind the year 9999.
pub(super) fn write_http(seconds: i64) -> String {
    let Ok(moment) = OffsetDateTime::from_unix_timestamp(seconds) else { return String::new() };
    let (date, time) = (moment.date(), moment.time());
    let (hour, minute, second) = time.as_hms();
    let month = MONTHS.get(usize::from(u8::from(date.month())) - 1).copied().unwrap_or_default();
    let (name, day, year) = (weekday(date.weekday()), date.day(), date.year());
    format!("{name}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

const fn weekday(day: Weekday) -> &'static str {
    match day {
        Weekday::Monday => "Mon",
        Weekday::Tuesday => "Tue",
        Weekday::Wednesday => "Wed",
        Weekday::Thursday => "Thu",
        Weekday::Friday => "Fri",
        Weekday::Saturday => "Sat",
        Weekday::Sunday => "Sun",
    }
}

fn date(year: u32, month: Month, day: u32) -> Option<Date> {
    Date::from_calendar_date(i32::try_from(year).ok()?, month, u8::try_from(day).ok()?).ok()
}

/// The Unix seconds of a day and `10:00:00`, if that were UTC. A leap second counts as the one before.
fn unix(date: Date, time: &[u8]) -> Option<i64> {
    let [h1, h2, b':', m1, m2, b':', s1, s2] = time else { return None };
    let field = |digits: [u8; 2]| number(&digits).and_then(|field| u8::try_from(field).ok());
    let second = match field([*s1, *s2])? {
        60 => 59,
        second => second,
    };
    let time = Time::from_hms(field([*h1, *h2])?, field([*m1, *m2])?, second).ok()?;
    Some(date.with_time(time).assume_utc().unix_timestamp())
}

/// What stands behind the fraction of a second, if there is one.
fn fraction(text: &[u8]) -> Option<&[u8]> {
    let Some(digits) = text.strip_prefix(b".") else { return Some(text) };
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    (1..=9).contains(&end).then(|| digits.get(end..)).flatten()
}

/// An offset from UTC in seconds.
fn offset(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        b"Z" => return Some(0),
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let [h1, h2, b':', m1, m2] = digits else { return None };
    let (hours, minutes) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?);
    (hours < 24 && minutes < 60).then(|| sign * i64::from(hours * 3_600 + minutes * 60))
}

/// Up to nine digits.
fn number(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0_u32, |number, digit| {
        if digit.is_ascii_digit() { number.checked_mul(10)?.checked_add(u32::from(digit - b'0')) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c031_dates_of_rfc_3339_have_one_form() {
        for (text, seconds) in [
            ("2021-07-25T10:00:00Z", 1_627_207_200),
            ("2020-01-01T00:00:00-07:00", 1_577_862_000),
            ("2019-11-16T10:11:12.634234626Z", 1_573_899_072),
            ("2020-02-29T23:59:60+00:00", 1_583_020_799),
            ("0000-01-01T00:00:00+23:59", -62_167_305_540),
            ("9999-12-31T23:59:59-23:59", 253_402_387_139),
        ] {
            assert_eq!(rfc3339(text.as_bytes()), Some(seconds), "{text}");
        }
        for text in [
            "",
            "1627207200",
            "2021-07-25T10:00:00",
            "2021-07-25t10:00:00Z",
            "2021-07-25T10:00:00z",
            "2021-07-25 10:00:00Z",
            "2021-07-25T10:00:00.Z",
            "2021-07-25T10:00:00.1234567890Z",
            "2021-07-25T10:00:00,5Z",
            "2021-07-25T10:00:00+0000",
            "2021-07-25T10:00:00+24:00",
            "2021-07-25T24:00:00Z",
            "2021-07-25T10:00:61Z",
            "2021-02-29T10:00:00Z",
            "2021-13-01T10:00:00Z",
            "2021-00-01T10:00:00Z",
            "+021-07-25T10:00:00Z",
            "2021-07-25T10:00:00Z ",
            " 2021-07-25T10:00:00Z",
            "2021-07-25T1０:00:00Z",
        ] {
            assert_eq!(rfc3339(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn c031_dates_of_http_have_one_form() {
        assert_eq!(http(b"Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        for text in [
            "",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "Sun, 31 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(http(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        for seconds in [0, 784_111_777, 1_627_207_200, 253_402_300_799] {
            assert_eq!(rfc3339(write_rfc3339(seconds).as_bytes()), Some(seconds));
            assert_eq!(http(write_http(seconds).as_bytes()), Some(seconds));
        }
        assert_eq!((write_rfc3339(i64::MAX), write_http(i64::MAX)), (String::new(), String::new()));
    }
}
