//! `openapi.json` and the routes say the same.

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Stage, report};

const DESCRIPTION: &str = include_str!("../../../src/admin/openapi.json");

#[tokio::test]
async fn every_route_is_described_and_every_description_is_a_route() {
    let described: BTreeSet<String> = description()["paths"].as_object().expect("paths").keys().cloned().collect();
    let source = include_str!("../../../src/admin/api.rs");
    let routed: BTreeSet<String> =
        source.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect();
    assert_eq!(described, routed);

    let stage = Stage::open().await;
    for (path, methods) in description()["paths"].as_object().expect("paths") {
        let target = format!("api{path}");
        for (method, described) in [(Method::GET, "get"), (Method::POST, "post")] {
            let answer = stage.ask(method, &target, &[("content-type", "application/json")], "{}".to_owned()).await;
            let is_described = methods.get(described).is_some();
            assert_eq!(answer.status != StatusCode::METHOD_NOT_ALLOWED, is_described, "{described} {path}");
            if is_described {
                let status = answer.status.as_str();
                assert!(methods[described]["responses"].get(status).is_some(), "{described} {path}: {status}");
            }
        }
    }
}

#[tokio::test]
async fn answers_have_the_fields_that_are_described_and_no_others() {
    let stage = Stage::open().await;
    stage.failed("evt_1", "no", Some("given up")).await;
    stage.endpoint("shop", "https://shop.example/hooks").await;
    stage.dead("shop", "msg_1", "order.paid", report(500, "no", "no"), "given up").await;
    let event = stage.json("api/inbox/event?consumer=orders&source=shop&key=evt_1").await;
    let message = stage.json("api/outbox/message?endpoint=shop&id=msg_1").await;
    let endpoint = stage.json("api/endpoints/endpoint?name=shop").await;
    for (schema, value) in [
        ("Event", &stage.json("api/inbox").await["events"][0]),
        ("EventDetails", &event),
        ("Message", &stage.json("api/outbox").await["messages"][0]),
        ("MessageDetails", &message),
        ("Endpoint", &endpoint),
        ("Endpoint", &stage.json("api/endpoints").await["endpoints"][0]),
        ("Activity", &stage.json("api/activity").await),
        ("Problem", &problem(&stage).await),
    ] {
        let schema = &description()["components"]["schemas"][schema];
        conforms(schema, value, "");
    }
}

async fn problem(stage: &Stage) -> Value {
    let answer = stage.post_json("api/inbox/retry", &json!({})).await;
    assert_eq!(answer.headers["content-type"], "application/problem+json");
    serde_json::from_slice(&answer.body).expect("JSON")
}

pub(super) fn description() -> Value {
    serde_json::from_str(DESCRIPTION).expect("JSON")
}

/// As far as these schemas go: types, fields, items, choices.
pub(super) fn conforms(schema: &Value, value: &Value, at: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().expect("a name");
        return conforms(&description()["components"]["schemas"][name], value, at);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let fits = |choice: &Value| match choice["required"][0].as_str() {
            Some(field) => value.get(field).is_some(),
            None => choice["type"] != "null" || value.is_null(),
        };
        let choice = choices.iter().find(|choice| fits(choice) && (value.is_null() == (choice["type"] == "null")));
        return conforms(choice.unwrap_or_else(|| panic!("{at}: {value} is none of {choices:?}")), value, at);
    }
    let types = match &schema["type"] {
        Value::Array(types) => types.clone(),
        one => vec![one.clone()],
    };
    let actual = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    assert!(types.contains(&json!(actual)), "{at}: {value} is no {types:?}");
    if let Some(names) = schema["enum"].as_array() {
        assert!(names.contains(value), "{at}: {value} is not among {names:?}");
    }
    if let (Some(properties), Some(fields)) = (schema["properties"].as_object(), value.as_object()) {
        let (described, there): (BTreeSet<_>, BTreeSet<_>) = (properties.keys().collect(), fields.keys().collect());
        assert_eq!(described, there, "{at}");
        for (name, value) in fields {
            conforms(&properties[name], value, &format!("{at}/{name}"));
        }
    }
    for (place, value) in value.as_array().into_iter().flatten().enumerate() {
        conforms(&schema["items"], value, &format!("{at}/{place}"));
    }
}
