//! Why a page or a call of the API could not be answered.

use axum::extract::rejection::{FormRejection, JsonRejection, QueryRejection};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;
use thiserror::Error;

use super::page::{self, Frame};
use crate::store::StoreError;

/// The causes, for pages and API alike.
#[derive(Debug, Error)]
pub(super) enum Fault {
    #[error("{0}")]
    Bad(String),
    #[error("{0}")]
    Forbidden(&'static str),
    #[error("{0} cannot be changed like that: {1}")]
    Conflict(&'static str, String),
    #[error("there is no such {0}")]
    NotFound(&'static str),
    #[error("this process has no {0}")]
    NotHere(&'static str),
    #[error("the store did not answer as it should: {0}")]
    Store(#[from] StoreError),
    #[error("log in first: send `Authorization: Bearer` and the token")]
    Unauthorized,
}

impl Fault {
    const fn status(&self) -> StatusCode {
        match self {
            Self::Bad(_) => StatusCode::BAD_REQUEST,
            Self::Conflict(..) => StatusCode::CONFLICT,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) | Self::NotHere(_) => StatusCode::NOT_FOUND,
            Self::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Bad(_) => "bad-request",
            Self::Conflict(..) => "conflict",
            Self::Forbidden(_) => "forbidden",
            Self::NotFound(_) | Self::NotHere(_) => "not-found",
            Self::Store(_) => "store-unavailable",
            Self::Unauthorized => "unauthorized",
        }
    }
}

impl From<QueryRejection> for Fault {
    fn from(rejection: QueryRejection) -> Self {
        Self::Bad(rejection.body_text())
    }
}

impl From<FormRejection> for Fault {
    fn from(rejection: FormRejection) -> Self {
        Self::Bad(rejection.body_text())
    }
}

impl From<JsonRejection> for Fault {
    fn from(rejection: JsonRejection) -> Self {
        Self::Bad(rejection.body_text())
    }
}

/// As a program reads it: `application/problem+json`.
#[derive(Debug)]
pub(super) struct Problem(pub(super) Fault);

impl<F: Into<Fault>> From<F> for Problem {
    fn from(fault: F) -> Self {
        Self(fault.into())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self(fault) = self;
        let status = fault.status();
        let problem = json!({
            "type": format!("urn:countersign:problem:{}", fault.name()),
            "title": fault.to_string(),
            "status": status.as_u16(),
        });
        let mut response = (status, problem.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if matches!(fault, Fault::Unauthorized) {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// As a person reads it: a page.
#[derive(Debug)]
pub(super) struct Sorry(pub(super) Fault);

impl<F: Into<Fault>> From<F> for Sorry {
    fn from(fault: F) -> Self {
        Self(fault.into())
    }
}

impl IntoResponse for Sorry {
    fn into_response(self) -> Response {
        let Self(fault) = self;
        let page = page::Sorry { frame: Frame::without_forms("Sorry"), text: &fault.to_string() };
        (fault.status(), page::html(&page)).into_response()
    }
}
