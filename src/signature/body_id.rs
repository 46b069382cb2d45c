//! Finds an event's id in a JSON body, after the body has been verified.
//!
//! Only the fields on the way are looked at; everything else is skipped without being built, so that neither a large
//! nor a deeply nested body costs memory.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The text at `path`, field names joined with dots. A string is taken without its quotes, a whole number as it is
/// written: ids with twenty digits keep all of them. `[].` at its beginning stands for the only element of a list.
///
/// `None` where the body is not JSON, has no such field, or something else stands there. Where a name appears twice,
/// the last one counts.
pub(crate) fn find(body: &[u8], path: &str) -> Option<String> {
    raw(body, path).and_then(text)
}

/// Whether an empty list stands at `path`.
pub(super) fn is_empty_list(body: &[u8], path: &str) -> bool {
    raw(body, path).is_some_and(|raw| {
        let inner = raw.get().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        inner.is_some_and(|inner| inner.trim().is_empty())
    })
}

fn raw<'de>(body: &'de [u8], path: &str) -> Option<&'de RawValue> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let found = match path.strip_prefix(ONLY_ITEM) {
        None => json.deserialize_map(AtPath(path)).ok()?,
        Some(path) => json.deserialize_seq(OnlyItem(path)).ok()?,
    };
    json.end().ok()?;
    found
}

/// At the beginning of a path: the body is a list, of one element.
const ONLY_ITEM: &str = "[].";

fn text(raw: &RawValue) -> Option<String> {
    let raw = raw.get();
    if raw.starts_with('"') {
        return serde_json::from_str::<String>(raw).ok().filter(|text| !text.is_empty());
    }
    let digits = raw.strip_prefix('-').unwrap_or(raw);
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| raw.to_owned())
}

struct AtPath<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for AtPath<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AtPath<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let (name, rest) = self.0.split_once('.').map_or((self.0, None), |(name, rest)| (name, Some(rest)));
        let mut found = None;
        while let Some(FieldName(field)) = map.next_key()? {
            if field != name {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = map.next_value::<&RawValue>()?;
            found = match rest {
                None => Some(value),
                Some(rest) => nested(value, rest),
            };
        }
        Ok(found)
    }
}

/// Looks into the only element of a list. Of several, none speaks for the request.
struct OnlyItem<'p>(&'p str);

impl<'de> Visitor<'de> for OnlyItem<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON list")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Self::Value, S::Error> {
        let found = list.next_element_seed(AtPath(self.0))?.flatten();
        let mut more = false;
        while list.next_element::<IgnoredAny>()?.is_some() {
            more = true;
        }
        Ok(found.filter(|_| !more))
    }
}

/// Looks into a field. What is not an object has no fields.
fn nested<'de>(value: &'de RawValue, path: &str) -> Option<&'de RawValue> {
    AtPath(path).deserialize(&mut serde_json::Deserializer::from_str(value.get())).ok().flatten()
}

/// A field's name, borrowed unless it is written with escapes.
struct FieldName<'de>(Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for FieldName<'de> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Name;
        impl<'de> Visitor<'de> for Name {
            type Value = FieldName<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field's name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(FieldName(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(FieldName(Cow::Owned(name.to_owned())))
            }
        }
        json.deserialize_str(Name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str, body: &str) -> Option<String> {
        find(body.as_bytes(), path)
    }

    #[test]
    fn a_string_or_a_whole_number_is_an_id() {
        assert_eq!(at("id", r#"{"a":[1,{"id":2}],"id":"evt_1","b":null}"#).as_deref(), Some("evt_1"));
        assert_eq!(at("id", r#"{"id":12345678901234567890}"#).as_deref(), Some("12345678901234567890"));
        assert_eq!(at("id", r#"{"id":-7}"#).as_deref(), Some("-7"));
        assert_eq!(at("id", r#" {"id" : "a\u00e9" } "#).as_deref(), Some("aé"));
        assert_eq!(at("id", r#"{"\u0069d":"x"}"#).as_deref(), Some("x"));
    }

    #[test]
    fn a_path_leads_through_objects() {
        assert_eq!(at("event.id", r#"{"event":{"type":"x","id":"evt_1"},"id":"other"}"#).as_deref(), Some("evt_1"));
        assert_eq!(at("event.id", r#"{"event":"evt_1"}"#), None);
        assert_eq!(at("event.id", r#"{"event":[{"id":"evt_1"}]}"#), None);
        assert_eq!(at("event.id", r#"{"event.id":"evt_1"}"#), None);
    }

    #[test]
    fn the_only_element_of_a_list_may_have_the_id() {
        assert_eq!(at("[].id", r#"[{"id":"a"}]"#).as_deref(), Some("a"));
        for body in ["[]", r#"[{"id":"a"},{"id":"b"}]"#, r#"{"id":"a"}"#, "[1]", r#"[{"id":"a"}"#, r#"[{"id":"a"}] x"#]
        {
            assert_eq!(at("[].id", body), None, "{body}");
        }
    }

    #[test]
    fn an_empty_list_is_seen_with_or_without_space_in_it() {
        assert!(is_empty_list(br#"{"events":[]}"#, "events") && is_empty_list(br#"{"events": [ ] }"#, "events"));
        for body in [r#"{"events":[1]}"#, r#"{"events":"[]"}"#, r#"{"events":{}}"#, "{}", "[]", "", r#"{"events":[]"#] {
            assert!(!is_empty_list(body.as_bytes(), "events"), "{body}");
        }
    }

    #[test]
    fn the_last_of_two_fields_counts() {
        assert_eq!(at("id", r#"{"id":"a","id":"b"}"#).as_deref(), Some("b"));
        assert_eq!(at("id", r#"{"id":"a","id":null}"#), None);
        assert_eq!(at("a.id", r#"{"a":{"id":"a"},"a":{}}"#), None);
    }

    #[test]
    fn whatever_else_a_body_is_it_has_no_id() {
        for body in [
            "",
            "null",
            "[]",
            "\"id\"",
            "id=evt_1",
            "{",
            r#"{"id":"a""#,
            r#"{"id":"a"} x"#,
            r#"{"id":1.0}"#,
            r#"{"id":1e3}"#,
            r#"{"id":""}"#,
            r#"{"id":true}"#,
            r#"{"id":{}}"#,
            r#"{"id":"\ud83d"}"#,
            "\u{feff}{\"id\":\"a\"}",
        ] {
            assert_eq!(at("id", body), None, "{body}");
        }
        assert_eq!(find(b"{\"id\":\"\xff\"}", "id"), None);
        assert_eq!(find(b"{\"a\":\"\xff\",\"id\":\"x\"}", "id").as_deref(), Some("x"));
    }

    #[test]
    fn depth_and_size_are_no_way_to_stop_it() {
        let deep = format!(r#"{{"a":{}{},"id":"x"}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(at("id", &deep).as_deref(), Some("x"));
        let deep_objects = format!(r#"{}"id":1{}"#, r#"{"id":"#.repeat(100_000), "}".repeat(100_000));
        assert_eq!(at("id", &deep_objects), None);
    }
}
